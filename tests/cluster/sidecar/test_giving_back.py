"""What a sidecar gives back: at once where nothing failed here, else after a pause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.held import pause_s
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.slices import Slices
from sie_fake.broker.queue import in_process_transports

from sie_core.settings import load_settings
from tests.cluster.sidecar.slices import slice_of

ATTEMPT = 4


@dataclass
class Delivered:
    """A delivery that came again."""

    payload: bytes = b"slice"
    attempt: int = ATTEMPT
    pauses: list[float] = field(default_factory=list)

    def nak(self, delay_s: float = 0.0) -> None:
        self.pauses.append(delay_s)


class Pulled:
    """A pull that is given no more."""

    credit = 0

    def add_credit(self, messages: int) -> None: ...


class Process:
    """An adapter process that takes slices and says nothing."""

    def send(self, number: int, frame: bytes) -> None: ...

    def cancel(self, number: int) -> None: ...


class Host:
    """A sidecar whose every request is wanted."""

    link = cast("Any", Process())

    def is_inbox(self, subject: str) -> bool:
        return True

    def is_wanted(self, reply: str) -> bool:
        return True


async def test_what_is_given_back_pauses_only_where_something_failed() -> None:
    (factory,) = in_process_transports()
    transport = factory.create("memory://back", {})
    slices = Slices(
        transport, load_settings(ClusterSettings), SidecarMetrics(), Host(), None, lambda: None, lambda: None
    )
    pull = cast("Any", Pulled())

    def taken(number: int) -> Delivered:
        delivery = Delivered()
        slices.take(slice_of(number).head, cast("Any", delivery), pull)
        return delivery

    # A slice that came again runs alone: the first is at work, the second waits.
    at_work, waiting = taken(1), taken(2)
    slices.hand_back_waiting(besides="another pool")
    assert (at_work.pauses, waiting.pauses) == ([], [0.0])
    waiting = taken(3)
    slices.hand_back_waiting(failed=True)
    slices.stood_still()
    assert at_work.pauses == waiting.pauses == [pause_s(ATTEMPT)]
    drained = taken(4)
    assert slices.hand_back_all() == 1
    assert drained.pauses == [0.0]
    await slices.end()
