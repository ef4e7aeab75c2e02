"""Preemption of long runs: between two layers, a batch of short requests may run on the same thread.

One text of 256 tokens may take ten times as long as a short request. No scheduler can split a text, so without
preemption every short request that arrives meanwhile waits for the end of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Local(threading.local):
    point: Callable[[], None] | None = None


_local = _Local()


def preemption_point() -> Callable[[], None] | None:
    """Return a callable that `Adapter.run` may call between two parts of a run; None if nothing may preempt it.

    Each call may run another batch, even of the same model, before it returns. Call it only if the progress of the
    run is held in local variables alone.
    """
    return _local.point


@contextmanager
def preempted_by(point: Callable[[], None] | None) -> Iterator[None]:
    """Have `preemption_point` return `point` on this thread; for callers of `Adapter.run`."""
    before, _local.point = _local.point, point
    try:
        yield
    finally:
        _local.point = before
