"""`sie serve`: the standalone server, with its settings as options.

Importing it loads no server: threads are counted out before any numeric library is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import click

from sie_core.cli.composition.compose import LEVELS, announce
from sie_core.cli.composition.program import program
from sie_core.serving.listening import listen

FRONT_ENDS: Final = "sie.frontends"
"""The group of the entry point of the distribution that has front ends."""


@click.command("serve")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--model", "more", multiple=True, help="A MODEL, as above; may be given several times.")
@click.option("--host", "http_host", help="Address to listen on.")
@click.option("-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("-d", "--device", help="auto, cuda, cuda:0, mps or cpu.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Folder of model configs and weights.")
@click.option("-m", "--models", "model_filter", help="Comma-separated ids of the models to serve; unset: all.")
@click.option("--frontends", type=int, help="Processes that take HTTP in front of the one with the device; 0: none.")
@click.option("--preload", "preload_models", help="Comma-separated ids of models loaded before readiness.")
@click.option("--local-cache", type=click.Path(path_type=Path), help="Local weight cache, in the Hub's layout.")
@click.option("--hf-fallback/--no-hf-fallback", default=None, help="Whether the Hugging Face Hub may be asked.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for requests in flight after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def command(models: tuple[str, ...], more: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    MODEL is an id of the catalog, one of the Hugging Face Hub (`org/name`), or a folder of weights. Each is loaded
    before the server is ready; without any, models are loaded at their first request.

    Every option is a setting; `SIE_…` variables set these and the others.
    """
    options = {**options, **_named((*models, *more), options)}
    # It listens before the server is imported: clients that come meanwhile are connected, and answered once it serves.
    with program(computes=True, **options) as (settings, plugins):
        told = partial(announce, as_json=settings.log_json)
        if settings.frontends:
            _find_front_ends(settings.frontends)(settings, plugins, told)
        else:
            with closing(listen(settings.http_host, settings.http_port)) as listener:
                from sie_core.server import serve

                serve(settings, plugins, listener, told)
    from sie_core.server import end_process

    end_process()


def _find_front_ends(wanted: int) -> Callable[..., None]:
    """Return what serves with front ends: the function of an entry point, called as `sie_core.server.serve` is, which
    listens itself.
    """
    from sie_core.contracts import PluginError

    for found in entry_points(group=FRONT_ENDS):
        serve: Callable[..., None] = found.load()
        return serve
    told = f"SIE_FRONTENDS (--frontends) is {wanted}, and the distribution sie-cluster, which has front ends, is not "
    raise PluginError(told + "installed. Install sie-cluster, or set it to 0.")


def _named(models: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that serve and load the named models; folders have their own names."""
    if not models:
        return {}
    folders = [name for name in models if name.startswith((".", "/", "~")) or Path(name).is_dir()]
    ids = [Path(name).expanduser().absolute().name if name in folders else name for name in models]
    preload = [*(name.strip() for name in (options["preload_models"] or "").split(",") if name.strip()), *ids]
    found = {"weight_folders": tuple(folders)} if folders else {}
    return {"preload_models": tuple(dict.fromkeys(preload)), **found}
