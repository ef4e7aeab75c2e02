"""`sie sidecar`: pulls work from the queue for the adapter process on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import LEVELS
from sie_core.cli.composition.program import program


@click.command("sidecar")
@click.option("--socket", "ipc_socket_path", type=click.Path(path_type=Path), help="Unix socket of the worker.")
@click.option("--pool", help="Queue pool to pull from.")
@click.option("--worker-id", help="Name of this worker.")
@click.option("--host", "http_host", help="Address of the probes.")
@click.option("--metrics-port", "worker_metrics_port", type=click.IntRange(0, 65535), help="Port of the probes.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for work at the worker after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def command(**options: Any) -> None:
    """Pull work from the queue, have the adapter process on this machine do it, and answer.

    `SIE_NATS_URL` names the broker. No model library is loaded.
    """
    from sie_cluster.settings import ClusterSettings

    with program(model=ClusterSettings, **options) as (settings, plugins):
        from sie_cluster.sidecar.run import run_sidecar

        run_sidecar(settings, plugins)
