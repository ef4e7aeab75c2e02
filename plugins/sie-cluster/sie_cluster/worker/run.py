"""The adapter process as a program: listens, has its sidecar started, and imports its engine while that starts.

Importing this loads no engine: to do so takes longer than all that a sidecar does until it is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

from sie_cluster.ipc.listening import listen_on
from sie_cluster.programs.processes import Program, pass_on_hangups, sie
from sie_cluster.settings import ClusterSettings
from sie_core.plugins import PluginSet
from sie_core.serving.garbage import collect_seldom
from sie_core.serving.http_server import run_loop
from sie_core.serving.listening import listen

OnReady = Callable[[], None]


def work(
    settings: ClusterSettings, plugins: PluginSet, on_ready: OnReady = lambda: None, *, with_sidecar: bool = False
) -> None:
    """Answer slices until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        with_sidecar: Whether a sidecar is started too, and started again where it ends.
        on_ready: Called once work is welcome, with every model to preload loaded.

    Raises:
        ListenError: The address, or the Unix socket, cannot be listened on.
        PluginError: Something chosen by a setting is not installed.
        SettingsError: As for the standalone server.
    """
    collect_seldom()
    with (
        contextlib.closing(listen(settings.http_host, settings.http_port)) as listener,
        contextlib.closing(listen_on(settings.ipc_socket_path)) as entry,
    ):
        try:
            run_loop(_work(settings, plugins, listener, entry, on_ready, with_sidecar))
        finally:
            settings.ipc_socket_path.unlink(missing_ok=True)


async def _work(
    settings: ClusterSettings,
    plugins: PluginSet,
    listener: socket.socket,
    entry: socket.socket,
    on_ready: OnReady,
    with_sidecar: bool,
) -> None:
    sidecar = _sidecar(settings) if with_sidecar else None
    running = None if sidecar is None else asyncio.create_task(sidecar.run())
    try:
        if sidecar is not None:
            if settings.log_settings is not None:
                pass_on_hangups([sidecar])
            await sidecar.tried.wait()

        from sie_cluster.worker.serving import answer_slices
        from sie_core.server.run import require_temporary_folder

        require_temporary_folder()
        await answer_slices(settings, plugins, listener, entry, on_ready, sidecar)
    finally:
        if running is not None:
            running.cancel()  # it has ended, or there is no engine: then it holds no work
            await asyncio.wait([running])


def _sidecar(settings: ClusterSettings) -> Program:
    """Describe the sidecar of this process: it has the same environment, and what options said."""
    variables = {
        "SIE_IPC_SOCKET_PATH": str(settings.ipc_socket_path),
        "SIE_HTTP_HOST": settings.http_host,
        "SIE_DRAIN_TIMEOUT_S": str(settings.drain_timeout_s),
        "SIE_LOG_LEVEL": settings.log_level,
        "SIE_LOG_JSON": str(settings.log_json),
    }
    # Where this process dies, its sidecar tells gateways so, and ends. The system sends the signal once for each thread
    # that ends; a second SIGQUIT does not end a program at once, as a second SIGTERM does.
    return Program("sidecar", sie("sidecar"), variables, death_signal=signal.SIGQUIT)
