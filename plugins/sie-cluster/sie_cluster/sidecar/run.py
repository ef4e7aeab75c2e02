"""The sidecar as a program: connects, serves its probes, drains at a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from functools import partial

from sie_cluster.configs.follower import Follower
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.programs.memory import with_memory
from sie_cluster.programs.probes import probes, refusal, tell_of_process
from sie_cluster.queue.broker import Make, open_transport, transport_maker
from sie_cluster.queue.payloads.store import PayloadStore, open_payload_store
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.sidecar import Sidecar
from sie_core.auth import Auth
from sie_core.catalog import require_one_source
from sie_core.contracts import QueueTransport
from sie_core.plugins import PluginSet
from sie_core.serving.draining import Drain
from sie_core.serving.garbage import collect_seldom
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.serving.listening import address_of, listen
from sie_core.tracing import make_tracer

log = logging.getLogger("sie_core.sidecar")


def run_sidecar(settings: ClusterSettings, plugins: PluginSet) -> None:
    """Work until a signal.

    Raises:
        ListenError: The port of the probes cannot be listened on.
        PluginError: No plugin serves the URL of the broker or of the payload store.
        SettingsError: There is none, or there are a config service and a models folder; or tokens are wanted, and there
            are none.
        QueueError: The broker refuses this user.
    """
    collect_seldom()
    if settings.config_service_url is not None:
        require_one_source(settings)
    settings = with_memory(settings, plugins)
    make, store = transport_maker(settings, plugins), open_payload_store(settings, plugins)
    port, chosen_by = settings.worker_metrics_port, "--metrics-port or SIE_WORKER_METRICS_PORT"
    with contextlib.closing(listen(settings.http_host, port, chosen_by=chosen_by)) as listener:
        run_loop(_run(settings, plugins, make, store, listener))


def worker_name(settings: ClusterSettings) -> str:
    """Name this worker."""
    return settings.worker_id or f"{socket.gethostname().partition('.')[0]}-{os.getpid()}"


async def _run(
    settings: ClusterSettings, plugins: PluginSet, make: Make, store: PayloadStore | None, listener: socket.socket
) -> None:
    transport = await open_transport(make, lambda state: log.info("the connection to the broker is %s", state))
    metrics, auth, tracer = SidecarMetrics(), Auth.of(settings), make_tracer(settings, "sie-sidecar")
    tell_of_process(metrics.registry)
    follower = None
    if settings.config_service_url is not None:
        counts = FollowerMetrics(metrics.registry)
        follower = Follower(settings, plugins, counts, lambda registry: sidecar.configs.follow(registry))
    on_lack = (lambda: None) if follower is None else follower.look_soon
    sidecar = Sidecar(transport, settings, worker_name(settings), metrics, store, on_lack, tracer)
    app = probes(lambda: None, lambda: _problem(sidecar, follower), metrics.registry, auth)
    server = HttpServer(app, refusal)
    Drain(sidecar, settings.drain_timeout_s, server.stop).install()
    log.info("worker %s, listening on %s", worker_name(settings), address_of(listener))
    try:
        await server.serve_on(listener, partial(_work, sidecar, follower, transport))
    finally:
        await sidecar.end()
        await transport.close()
        if tracer is not None:
            tracer.close()
        log.info("stopped")


async def _work(sidecar: Sidecar, follower: Follower | None, transport: QueueTransport) -> None:
    """Work until cancelled, by the configs of the config service where there is one."""
    if follower is None:
        await sidecar.run()
        return
    await follower.hear(transport)
    following = asyncio.create_task(follower.run())
    try:
        await sidecar.run()
    finally:
        following.cancel()


def _problem(sidecar: Sidecar, follower: Follower | None) -> str | None:
    missing = None if follower is None else follower.state.ready_problem
    return missing or sidecar.problem
