"""The cells of the grid: what is asked, by how many clients, how often."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.bench.workload.texts import KINDS, make_texts

GROUPS = (1, 32)
"""Texts a request."""
CLIENTS = (1, 8, 32, 64)
TOKENS_A_TEXT = {"short": 10, "mixed": 52, "long": 205}
"""Roughly, to choose how many requests a cell sends."""
HEAVY = 50_000
"""Tokens in flight from which each client asks once, in one repetition: a padded server needs up to two minutes."""
LEAST = {1: 30, 32: 4}
"""Answers of a cell at least, by the texts of a request: fewer give no median."""
WARM_UP = {1: 8, 32: 2}
"""Requests that are not timed."""


@dataclass(frozen=True)
class Cell:
    """Closed-loop clients that send the texts of a kind in turn, the same to every server, until time and count are up.

    A cell that ended by time alone would be a few answers of a slow server; by count alone, a blink of a fast one.
    """

    kind: str
    group: int
    clients: int
    seconds: float
    rounds: int = 2
    """How often each client asks at least."""

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.group} × {self.clients}"

    @property
    def is_heavy(self) -> bool:
        return self.clients * self.group * TOKENS_A_TEXT[self.kind] >= HEAVY

    @property
    def least(self) -> int:
        """How many requests are sent at least."""
        return self.clients if self.is_heavy else max(LEAST[self.group], self.rounds * self.clients)

    @property
    def least_s(self) -> float:
        """How long it goes on at least."""
        return 0.0 if self.is_heavy else self.seconds

    @property
    def warm_up(self) -> int:
        return 1 if self.is_heavy else WARM_UP[self.group]

    @cached_property
    def requests(self) -> list[list[int]]:
        """The places of the texts of each request in the kind's pool, which they go through once."""
        pool = KINDS[self.kind].pool
        return [list(range(start, start + self.group)) for start in range(0, pool, self.group)]

    @property
    def texts(self) -> list[str]:
        """The pool."""
        return make_texts(self.kind)


def grid(seconds: float) -> list[Cell]:
    """List every cell, single texts first."""
    return [Cell(kind, group, clients, seconds) for group in GROUPS for kind in KINDS for clients in CLIENTS]


def quick_grid() -> list[Cell]:
    """List the few cells of a smoke run."""
    return [Cell("mixed", 1, 1, 1.0), Cell("mixed", 1, 8, 1.0), Cell("mixed", 32, 1, 1.0)]
