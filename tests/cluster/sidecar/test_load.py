"""What a worker holds, and when it is saturated."""

from __future__ import annotations

from sie_cluster.messages.work import WorkHead
from sie_cluster.sidecar.load import Load

HEAD = WorkHead("r", 0, 1, 1, "encode", "org/a", b"k" * 16, 0, 1, 10, "_INBOX.a.1")


def test_a_worker_is_saturated_from_nine_tenths_of_what_it_takes_until_seven_tenths() -> None:
    told: list[bool] = []
    load = Load(100, lambda: told.append(load.saturated))
    at = []
    for _ in range(10):
        load.take(HEAD)
        at.append(load.saturated)
    assert at == [False] * 8 + [True] * 2
    at = []
    for _ in range(10):
        load.leave(HEAD)
        at.append(load.saturated)
    assert at == [True] * 3 + [False] * 7
    assert told == [True, False]
    assert (load.cost, dict(load.of_model)) == (0, {})
