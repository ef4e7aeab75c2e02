"""`sie serve --frontends N`: the server whose HTTP is taken by processes of their own, one socket of the port each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from sie_cluster.ipc.listening import listen_on
from sie_core.plugins import PluginSet
from sie_core.serving.announcement import Announcement
from sie_core.serving.listening import listen
from sie_core.settings import Settings

ENTRY, INNER = "work", "lookups"
"""Sockets in the folder of a server: of frames, and of HTTP."""


def serve(settings: Settings, plugins: PluginSet, on_ready: Callable[[Announcement], None]) -> None:
    """Serve until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        on_ready: Called with the announcement once new requests are welcome, with every model to preload loaded.

    Raises:
        ListenError: The address cannot be listened on, or not by several processes.
        PluginError: Something chosen by a setting is not installed.
        SettingsError: As for a server without front ends.
    """
    host, port = settings.http_host, settings.http_port
    with closing(listen(host, port)) as alone:  # sharing a port with another server must fail
        port = alone.getsockname()[1]
    with ExitStack() as stack:
        # All are opened here, and outlive a front end: what connects while it is started again waits.
        listeners = [stack.enter_context(closing(listen(host, port, share=True))) for _ in range(settings.frontends)]

        from sie_cluster.frontends.children import FrontEnds
        from sie_core.server.run import require_temporary_folder
        from sie_core.server.run import serve as serve_on

        require_temporary_folder()
        folder = Path(tempfile.mkdtemp(prefix="sie-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        entry, inner = (stack.enter_context(closing(listen_on(folder / name))) for name in (ENTRY, INNER))
        front_ends = FrontEnds(settings, listeners, inner, entry, folder)
        serve_on(settings, plugins, listeners[0], on_ready, front_ends)
