"""The sidecar as a program: connects, serves its probes, drains at a signal."""

from __future__ import annotations

import contextlib
import logging
import os
import socket

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from sie_core.cluster.broker import Make, open_transport, transport_maker
from sie_core.cluster.payloads.store import PayloadStore, open_payload_store
from sie_core.cluster.probes import probes, refusal
from sie_core.cluster.sidecar.metrics import SidecarMetrics
from sie_core.cluster.sidecar.sidecar import Sidecar
from sie_core.plugins import PluginSet
from sie_core.serving.draining import Drain
from sie_core.serving.garbage import collect_seldom
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.serving.listening import address_of, listen
from sie_core.settings import Settings

log = logging.getLogger("sie_core.sidecar")


def run_sidecar(settings: Settings, plugins: PluginSet) -> None:
    """Work until a signal.

    Raises:
        ListenError: The port of the probes cannot be listened on.
        PluginError: No plugin serves the URL of the broker or of the payload store.
        SettingsError: There is none.
        QueueError: The broker refuses this user.
    """
    collect_seldom()
    make, store = transport_maker(settings, plugins), open_payload_store(settings, plugins)
    with contextlib.closing(listen(settings.http_host, settings.worker_metrics_port)) as listener:
        run_loop(_run(settings, make, store, listener))


def worker_name(settings: Settings) -> str:
    """Name this worker."""
    return settings.worker_id or f"{socket.gethostname().partition('.')[0]}-{os.getpid()}"


async def _run(settings: Settings, make: Make, store: PayloadStore | None, listener: socket.socket) -> None:
    transport = await open_transport(make, lambda state: log.info("the connection to the broker is %s", state))
    metrics = SidecarMetrics()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=metrics.registry)
    sidecar = Sidecar(transport, settings, worker_name(settings), metrics, store)
    server = HttpServer(probes(lambda: None, lambda: sidecar.problem, metrics.registry), refusal)
    Drain(sidecar, settings.drain_timeout_s, server.stop).install()
    log.info("worker %s, listening on %s", worker_name(settings), address_of(listener))
    try:
        await server.serve_on(listener, sidecar.run)
    finally:
        await sidecar.end()
        await transport.close()
        log.info("stopped")
