"""`sie worker`: the adapter process, which runs models for its sidecar.

Importing it loads no engine: threads are counted out before any numeric library is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import LEVELS
from sie_core.cli.composition.program import program


@click.command("worker")
@click.option("--with-sidecar", is_flag=True, help="Start a sidecar too, and watch it.")
@click.option("--socket", "ipc_socket_path", type=click.Path(path_type=Path), help="Unix socket of the sidecar.")
@click.option("--host", "http_host", help="Address of the probes.")
@click.option(
    "-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Port of the probes; 0 takes a free one."
)
@click.option("-d", "--device", help="auto, cuda, cuda:0, mps or cpu.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Folder of model configs and weights.")
@click.option("-m", "--models", "model_filter", help="Comma-separated ids of the models to serve; unset: all.")
@click.option("--preload", "preload_models", help="Comma-separated ids of models loaded before readiness.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for work in flight after SIGTERM.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
@click.option("--json-logs/--no-json-logs", "log_json", default=None, help="One JSON object a line.")
def command(with_sidecar: bool, **options: Any) -> None:
    """Run models for the sidecar on this machine, which pulls their work from the queue."""
    from sie_cluster.settings import ClusterSettings

    with program(model=ClusterSettings, computes=True, **options) as (settings, plugins):
        from sie_cluster.worker.run import work
        from sie_core.serving.draining import end_process

        work(settings, plugins, with_sidecar=with_sidecar)
    end_process()
