"""Slices whose sidecar has gone: they are computed to their end, for the sidecar that comes next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sie_core.cluster.ipc.framing import FrameStream, Kind
from sie_core.cluster.messages.frames import FrameError, Pieces, encode_pieces, size_of
from sie_core.cluster.messages.work import WorkHead, read_work_head

KEEP_S = 60.0
"""How long a result is kept for its message to be delivered again."""
MOST_BYTES = 64 << 20
"""Of the results that are kept; beyond it a slice is computed again."""


@dataclass(slots=True, eq=False)
class AtWork:
    """A slice that is computed, or whose result is kept."""

    frame: bytes
    to: tuple[FrameStream, int] | None
    """Where its result goes; None: its sidecar has gone."""
    task: asyncio.Task[Pieces | None] | None = None
    result: Pieces | None = None


class Orphans:
    """All of them, by the id of their slice."""

    def __init__(self) -> None:
        self._slices: dict[str, tuple[WorkHead, AtWork]] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._slices)

    def add(self, work: AtWork) -> bool:
        """Keep a slice whose sidecar has gone; False where its head cannot be read."""
        try:
            head = read_work_head(work.frame)
        except FrameError:
            return False
        work.to = None
        self._slices[head.id] = head, work
        return True

    def take(self, frame: bytes) -> AtWork | None:
        """Return the slice of a frame that is delivered again, no orphan from now on; None where it was none."""
        try:
            return self._remove(read_work_head(frame).id)
        except FrameError:
            return None

    def finish(self, work: AtWork, result: Pieces | None, sidecar: FrameStream | None) -> None:
        """Take a result and tell the sidecar of now; None: there is none."""
        head = read_work_head(work.frame)
        if not self._keeps(head.id, work):
            return
        if result is None:
            self._remove(head.id)
            return
        work.result = result
        self._bytes += size_of(result)
        if sidecar is not None:
            _tell(sidecar, head, result)
        asyncio.get_running_loop().call_later(KEEP_S, self._forget, head.id, work)
        while self._bytes > MOST_BYTES:
            self._remove(next(name for name, (_, each) in self._slices.items() if each.result is not None))

    def tell_all(self, sidecar: FrameStream) -> None:
        """Tell a sidecar that has come every result that is there."""
        for head, work in self._slices.values():
            if work.result is not None:
                _tell(sidecar, head, work.result)

    def _keeps(self, name: str, work: AtWork) -> bool:
        """Whether a slice is kept, and not a later one of the same id."""
        return self._slices.get(name, (None, None))[1] is work

    def _forget(self, name: str, work: AtWork) -> None:
        if self._keeps(name, work):
            self._remove(name)

    def _remove(self, name: str) -> AtWork | None:
        _, work = self._slices.pop(name, (None, None))
        if work is not None and work.result is not None:
            self._bytes -= size_of(work.result)
        return work


def _tell(sidecar: FrameStream, head: WorkHead, result: Pieces) -> None:
    sidecar.send(Kind.ORPHAN, 0, *encode_pieces({"id": head.id, "reply": head.reply}, (result,)))
