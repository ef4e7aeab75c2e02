"""`sie verify`: compares what the engine returns for a model with a reference library on the same weights.

It only asks and prints; comparing is the affair of `sie_core.verification`.
"""

from __future__ import annotations

import json
import sys

import click

from sie_core.cli.composition.compose import BadSettings, find_plugins, read_settings, tell_problems
from sie_core.cpu_budget import cpu_budget, set_thread_environment
from sie_core.logs import configure_logging

PRECISIONS = click.Choice(["float32", "bfloat16", "float16"])


@click.command("verify")
@click.argument("model_id", metavar="MODEL")
@click.option("--precision", type=PRECISIONS, default="float32", show_default=True, help="What the engine computes in.")
@click.option("-d", "--device", help="auto, cuda, cuda:0, mps or cpu.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
def command(model_id: str, precision: str, device: str | None, as_json: bool) -> None:
    """Compare what the engine returns for MODEL with a reference library.

    The whole engine runs in this process on the model's weights. It computes every output for texts of several lengths,
    all in one batch and each alone. Then the reference library that a plugin names computes the same, on the CPU in
    float32. The two are in memory one after the other.

    Exits with 0 if every output is within the tolerance of its reference. Exits with 1 if one differs or has no
    reference, as when the library itself serves the model.
    """
    settings = read_settings(device=device)
    configure_logging("ERROR", as_json=settings.log_json)
    set_thread_environment(cpu_budget())

    from sie_core.cache import build_chain
    from sie_core.catalog import build_catalog
    from sie_core.contracts import InferenceError, ModelLoadError, PluginError
    from sie_core.plugins.output import stdout_to_stderr
    from sie_core.settings import SettingsError
    from sie_core.verification import verify_model

    plugins = find_plugins(settings)
    try:
        with stdout_to_stderr():
            catalog = build_catalog(settings, plugins)
            report = verify_model(settings, plugins, catalog, build_chain(settings, plugins), model_id, precision)
    except SettingsError as error:
        raise BadSettings(str(error)) from None
    except InferenceError as error:
        raise click.ClickException(error.message.replace("GET /v1/models", "`sie models`")) from None
    except (ModelLoadError, PluginError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False) if as_json else "\n".join(report.lines()))
    tell_problems(plugins)
    sys.exit(0 if report.verdict == "verified" else 1)
