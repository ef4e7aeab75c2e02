"""`sie config serve`: the config service, with its settings as options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import LEVELS, announce
from sie_core.cli.composition.program import program


@click.command("serve")
@click.option("--host", "http_host", help="Address to listen on.")
@click.option("-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option(
    "--store", "config_store_dir", help="Where it keeps a backup of what its API was told: a folder, or s3://…"
)
@click.option("--models-dir", help="Folder of model configs, on top of those plugins ship.")
@click.option("--bundles-dir", type=click.Path(path_type=Path), help="Folder of bundles.")
@click.option(
    "--restore/--no-restore", "config_restore", default=None, help="Begin with the backup if nothing is kept yet."
)
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for requests in flight after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def serve(**options: Any) -> None:
    """Serve the model configs of a cluster, and take changes of them.

    Gateways and workers follow it by `SIE_CONFIG_SERVICE_URL`. With `SIE_NATS_URL` it keeps changes in the broker and
    announces them at once; several may run beside each other. Without, the store alone keeps them.
    """
    from sie_cluster.config_service.run import ServiceEnded, run_config_service
    from sie_cluster.settings import ClusterSettings

    with program(ServiceEnded, model=ClusterSettings, **options) as (settings, plugins):
        run_config_service(settings, plugins, partial(announce, as_json=settings.log_json))
