"""A front end as a program: `python -m sie_cluster.frontends.front DESCRIPTOR FOLDER`, started by `sie serve`.

It imports no engine and discovers no plugins.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from functools import partial
from math import ceil, inf
from pathlib import Path

from sie_cluster.frontends.backend import DeviceBackend, DeviceLink
from sie_cluster.frontends.lookups import Lookups, Tunnel
from sie_cluster.frontends.run import ENTRY, INNER
from sie_cluster.frontends.tally import Tally
from sie_core.api import SOCKETS, Browsers, Gate, allowed_hosts, create_app, error_response
from sie_core.api.http.gate import CLIENT_SHARE
from sie_core.api.http.limits import MOST_BODIES
from sie_core.api.ops.status import own_profile
from sie_core.concurrency.pacing import PACING
from sie_core.concurrency.tasks import Tasks
from sie_core.cpu_budget import cpu_budget
from sie_core.logs import configure_logging
from sie_core.serving.draining import GRACE_S, Drain, end_process
from sie_core.serving.garbage import bound_arenas, collect_seldom, keep_imported
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.settings import Settings, load_settings
from sie_core.tracing import make_tracer


def main() -> None:
    """Serve until a signal, or until the process with the device has ended."""
    descriptor, folder = int(sys.argv[1]), Path(sys.argv[2])
    collect_seldom()
    bound_arenas()
    settings = load_settings(Settings)
    configure_logging(settings.log_level, as_json=settings.log_json, access=settings.access_log)
    PACING.set_cores(cpu_budget().threads)
    keep_imported()
    with socket.socket(fileno=descriptor) as listener:
        run_loop(_serve(settings, listener, folder))
    end_process()


async def _serve(settings: Settings, listener: socket.socket, folder: Path) -> None:
    ending = False

    def lost() -> None:
        if not ending:
            shutil.rmtree(folder, ignore_errors=True)  # its owner may have been killed
            gate.close()
            tasks.start(end())

    async def end() -> None:
        await gate.idle(GRACE_S)  # what was in flight is refused
        server.stop()

    def drain() -> None:
        gate.close()
        tasks.start(drained())

    async def drained() -> None:
        await gate.idle(inf)
        link.drained()

    link, gate, tracer, tasks = DeviceLink(lost, drain), _gate(settings), make_tracer(settings), Tasks()
    app = create_app(
        DeviceBackend(link),
        settings,
        gate=gate,
        machine_profile=own_profile(settings, None),
        browsers=Browsers(settings.cors_origins, allowed_hosts(settings, listener.getsockname()[0])),
        tracer=tracer,
        metrics=Tally(link.tell),
        lookups=Lookups(folder / INNER),
    )
    refusal, tunnel = partial(error_response, scope={"path": "/v1/"}), partial(Tunnel, folder / INNER)
    server = HttpServer(app, refusal, SOCKETS, keep_alive_s=settings.http_keep_alive_s, open_socket=tunnel)
    Drain(gate, settings.drain_timeout_s, server.stop).install()
    await link.connect(folder / ENTRY)
    try:
        await server.serve_on(listener, partial(asyncio.sleep, 0))
    finally:
        ending = True
        link.close()
        if tracer is not None:
            tracer.close()


def _gate(settings: Settings) -> Gate:
    """Make a gate with this front end's part of the bytes; the process with the device counts requests for all."""
    largest = settings.max_request_body_bytes
    part = MOST_BODIES * largest // max(1, settings.frontends)
    return Gate(settings.max_concurrent_requests, max(part, ceil(largest / CLIENT_SHARE)))


if __name__ == "__main__":
    main()
