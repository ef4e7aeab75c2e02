"""Where sidecars connect to an adapter process: listened on as long as that lives, also where its file was removed."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sie_cluster.ipc.listening import listen_on
from sie_core.serving.listening import ListenError

ALONE_S: Final = 10.0
"""How long there may be no sidecar until the process counts as not ready: one that is started again takes seconds."""

log = logging.getLogger(__name__)


class Entry:
    """The socket of one adapter process. Methods are called on one event loop.

    Args:
        opened: What `listen_on` returned.
        protocol: Makes the protocol of a connection.
        connections: Counts the connections of sidecars.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        opened: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened, self._protocol, self._connections, self._clock = opened, protocol, connections, clock
        self._path = Path(opened.getsockname())
        self._file = _file(self._path)
        self._server: asyncio.Server | None = None
        self._alone_since: float | None = None
        self._told = self._told_lost = False

    @property
    def problem(self) -> str | None:
        """Why no work can come, once that is so for `ALONE_S`."""
        if self._connections() or self._alone_since is None:
            return None
        alone_s = self._clock() - self._alone_since
        return None if alone_s < ALONE_S else f"no sidecar has been connected to {self._path} for {alone_s:.0f} s"

    async def listen(self) -> None:
        """Let sidecars connect, until the event loop ends."""
        # It is kept here because uvloop closes the socket of a server that nobody refers to.
        self._server = await asyncio.get_running_loop().create_unix_server(self._protocol, sock=self._opened)
        self._alone_since = self._clock()

    async def look(self) -> None:
        """Note whether there is a sidecar; where there is none, listen anew if the socket's file is gone or another's.

        Called from time to time.
        """
        if self._server is None:
            return
        if self._connections():
            self._alone_since = None
            self._told = self._told_lost = False
            return
        if self._alone_since is None:
            self._alone_since = self._clock()
        if (problem := self.problem) is not None and not self._told:
            self._told = True
            log.warning("not ready: %s", problem)
        if _file(self._path) != self._file:
            await self._listen_anew()

    async def _listen_anew(self) -> None:
        try:
            opened = listen_on(self._path)
        except ListenError as error:
            if not self._told_lost:
                log.error("the socket that sidecars connect to was removed, and cannot be made anew: %s", error)
            self._told_lost = True
            return
        server = await asyncio.get_running_loop().create_unix_server(self._protocol, sock=opened)
        if self._server is not None:
            self._server.close()
        self._server, self._opened, self._file = server, opened, _file(self._path)
        log.warning("the socket %s was removed and is made anew; sidecars find it by themselves", self._path)


def _file(path: Path) -> tuple[int, int] | None:
    """Identify a file; None where there is none, or none that can be seen."""
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
