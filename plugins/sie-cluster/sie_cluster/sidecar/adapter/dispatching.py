"""Sends slices to the adapter process as far as it has room, and counts what it has.

A key of which it has nothing is sent at once, whatever it has of others: its fair queue decides whose turn it is, and
cannot where it does not have the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sie_cluster.messages.work import batch_bytes
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.adapter.flow import Ahead, Turns
from sie_cluster.sidecar.held import Slice


class Dispatch:
    """The slices that the adapter process has, and those that wait for it.

    Args:
        settings: The size of a batch, and how many may be ahead.
        send: Sends a slice.
    """

    def __init__(self, settings: ClusterSettings, send: Callable[[Slice], None]) -> None:
        self._send_on, self._batch_bytes = send, batch_bytes(settings)
        self._depth = settings.rust_pipeline_depth or settings.pipeline_depth
        self._waiting = Turns()
        """Slices that the adapter process has not been sent."""
        self._ahead = Ahead(self._batch_bytes)
        self._at_work = self._loading = 0
        """Slices that the adapter process has, and those of them that wait for a load."""
        self._of_key: Counter[bytes] = Counter()
        """Slices that it has of each key."""
        self._alone = False
        """Whether the one at work is to be alone."""

    @property
    def batches_ahead(self) -> float:
        """Batches that wait at the adapter process."""
        return self._ahead.batches

    def take(self, held: Slice) -> None:
        """Send a slice on, or have it wait for its turn."""
        if self._waiting or self._alone or held.alone or not self._may_send():
            self._waiting.add(held)
            self._send_more()
        else:
            self._send(held)

    def remove(self, held: Slice) -> None:
        """Have a slice wait no more, where it does."""
        self._waiting.remove(held)

    def queued(self, received: int, batches: float) -> None:
        """Take a report of the adapter process; see `Ahead.reported`."""
        self._ahead.reported(received, batches)
        self._send_more()

    def waits_for_load(self, held: Slice, *, waits: bool) -> None:
        """Have a slice that waits for a load hold no place."""
        held.loading = waits
        self._loading += 1 if waits else -1
        self._send_more()

    def ended(self, held: Slice) -> None:
        """Take that a slice that was sent is answered, or cancelled."""
        self._at_work -= 1
        self._of_key[held.head.key] -= 1
        if not self._of_key[held.head.key]:
            del self._of_key[held.head.key]
        self._loading -= held.loading
        held.loading = False
        self._alone = False
        if self._waiting:
            self._send_more()

    def clear(self) -> None:
        """Begin anew: the adapter process is another, and has nothing."""
        self._at_work, self._loading, self._alone = 0, 0, False
        self._of_key.clear()
        self._ahead.clear()

    def _send_more(self) -> None:
        """Send what waits, as far as there is room; what is to be alone goes when nothing is at work."""
        while self._waiting and not self._alone:
            # Loads may take minutes: until they end, others go before what runs alone.
            others_go = self._loading and self._waiting.pass_over_alone()
            if self._waiting.next_is_alone and self._at_work and not others_go:
                return
            if self._waiting.next_is_alone:
                self._alone = True
            elif not self._may_send() and not self._waiting.prefer(lambda key: key not in self._of_key):
                return
            for held in self._waiting.take(self._batch_bytes):
                self._send(held)

    def _may_send(self) -> bool:
        """Whether the adapter process has less queued than it may, or nothing to do at all."""
        return self._ahead.batches < self._depth or self._at_work <= self._loading

    def _send(self, held: Slice) -> None:
        held.sent = True
        self._at_work += 1
        self._of_key[held.head.key] += 1
        self._ahead.sent(held.head.cost)
        self._send_on(held)
