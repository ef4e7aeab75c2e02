"""`sie serve`: the standalone server, with its settings as options.

Importing it loads no server: threads are counted out before any numeric library is imported.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import (
    LEVELS,
    BadSettings,
    announce,
    find_plugins,
    read_settings,
    warn_of_unknown_variables,
)
from sie_core.cpu_budget import cpu_budget, set_thread_environment
from sie_core.logs import configure_logging

log = logging.getLogger("sie_core.server")


@click.command("serve")
@click.option("--host", "http_host", help="Address to listen on.")
@click.option("-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("-d", "--device", help="auto, cuda, cuda:0, mps or cpu.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Folder of model configs and weights.")
@click.option("-m", "--models", "model_filter", help="Comma-separated ids of the models to serve; unset: all.")
@click.option("--preload", "preload_models", help="Comma-separated ids of models loaded before readiness.")
@click.option("--local-cache", type=click.Path(path_type=Path), help="Local weight cache, in the Hub's layout.")
@click.option("--hf-fallback/--no-hf-fallback", default=None, help="Whether the Hugging Face Hub may be asked.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for requests in flight after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def command(**options: Any) -> None:
    """Serve models over HTTP.

    Every option is a setting; `SIE_…` variables set these and the others.
    """
    settings = read_settings(**options)
    configure_logging(settings.log_level, as_json=settings.log_json)
    budget = cpu_budget()
    threads = set_thread_environment(budget)
    log.info("CPU budget: %s; %s", budget, threads)

    from sie_core.contracts import PluginError
    from sie_core.server import ListenError, end_process, serve
    from sie_core.settings import SettingsError

    try:
        plugins = find_plugins(settings)
        warn_of_unknown_variables(plugins)
        serve(settings, plugins, on_ready=partial(announce, as_json=settings.log_json))
    except SettingsError as error:
        raise BadSettings(str(error)) from None
    except (ListenError, PluginError) as error:
        raise click.ClickException(str(error)) from None
    end_process()
