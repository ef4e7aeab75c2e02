"""`sie gateway`: the HTTP API over the queue of `SIE_NATS_URL`, with its settings as options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import LEVELS, announce
from sie_core.cli.composition.program import program


@click.command("gateway")
@click.option("--host", "http_host", help="Address to listen on.")
@click.option("-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Folder of model configs.")
@click.option("-m", "--models", "model_filter", help="Comma-separated ids of the models to serve; unset: all.")
@click.option("--pool", help="Queue pool that is filled.")
@click.option("--timeout", "gateway_timeout_s", type=float, help="Seconds until an answer that did not come is a 504.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for requests in flight after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def command(**options: Any) -> None:
    """Serve the HTTP API over a queue; workers run the models.

    `SIE_NATS_URL` names the broker.
    """
    from sie_cluster.settings import ClusterSettings

    with program(model=ClusterSettings, **options) as (settings, plugins):
        from sie_cluster.gateway.run import run_gateway

        run_gateway(settings, plugins, partial(announce, as_json=settings.log_json))
