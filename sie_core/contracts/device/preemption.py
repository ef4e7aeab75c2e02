"""Where a long run may be preempted: between two layers a batch of short requests may run on the same thread.

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
    """Return what `Adapter.run` may call between two parts of a run; None where nobody wants to preempt it.

    Each call may run another batch, even of the same model, before it returns. So call it only where no state outside
    the caller's own variables tells how far the run is.
    """
    return _local.point


@contextmanager
def preempted_by(point: Callable[[], None] | None) -> Iterator[None]:
    """Have `preemption_point` return `point` on this thread; for whoever calls `Adapter.run`."""
    before, _local.point = _local.point, point
    try:
        yield
    finally:
        _local.point = before
