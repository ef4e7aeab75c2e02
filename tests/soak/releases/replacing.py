"""Replaces the programs of one release by those of another under load, role by role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.releases.cluster import Mixed, Release, Role


@dataclass(frozen=True, slots=True)
class Outcome:
    """What clients saw."""

    to: Release
    order: tuple[Role, ...]
    answered: int
    refused: int
    """Replies that told the SDK to try again."""
    slowest_s: float
    """The longest request, the SDK's pauses included."""
    wrong: tuple[str, ...]
    """Requests that failed for good, and vectors that are not those of their texts."""


def replace(cluster: Mixed, order: Sequence[Role], to: Release, clients: int) -> Outcome:
    """Have clients ask, replace every program, and wait until each client is answered after each role."""
    with cluster.clients(clients) as asking:
        try:
            asking.go_on()
            for role in order:
                cluster.replace(role, to)
                asking.go_on()
        except AssertionError:
            assert asking.wrong
    return Outcome(to, tuple(order), asking.answered, asking.refused.total(), asking.slowest_s, tuple(asking.wrong))
