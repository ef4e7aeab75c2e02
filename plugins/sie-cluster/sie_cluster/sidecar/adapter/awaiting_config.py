"""Slices of models whose config the adapter process does not have yet: they wait a little, then another takes them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sie_cluster.messages.work import WorkHead
from sie_cluster.sidecar.held import Slice

WAIT_S = 2.0
"""What a change of a config takes at most to reach every worker, while all is well."""


class Owner(Protocol):
    """Who holds the slices."""

    def config_came(self, held: Slice) -> None:
        """Take a slice whose config is there."""
        ...

    def config_is_late(self, held: Slice) -> None:
        """Take one that has waited for `WAIT_S`."""
        ...


class AwaitingConfig:
    """All of them.

    Args:
        owner: Holds the slices.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._waiting: dict[Slice, asyncio.TimerHandle] = {}
        self._epoch: int | None = None

    def lacks(self, head: WorkHead) -> bool:
        """Whether the adapter process has an older config than the gateway knew."""
        return self._epoch is not None and head.config_epoch is not None and head.config_epoch > self._epoch

    def take(self, held: Slice) -> None:
        """Have a slice wait."""
        self._waiting[held] = asyncio.get_running_loop().call_later(WAIT_S, self._late, held)

    def remove(self, held: Slice) -> None:
        """Have a slice wait no more, where it does."""
        if (timer := self._waiting.pop(held, None)) is not None:
            timer.cancel()

    def reached(self, epoch: int | None) -> None:
        """Take the epoch of the configs that the adapter process has; None: it follows no config service."""
        self._epoch = epoch
        for held in [each for each in self._waiting if not self.lacks(each.head)]:
            self.remove(held)
            self._owner.config_came(held)

    def _late(self, held: Slice) -> None:
        self.remove(held)
        self._owner.config_is_late(held)
