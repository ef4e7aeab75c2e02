"""The cells of the grid: what is asked, by how many clients, how often. It must not know who answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.bench.texts import KINDS, make_texts

GROUPS = (1, 32)
"""Texts a request."""
CLIENTS = (1, 8, 32, 64)
TOKENS_A_TEXT = {"short": 10, "mixed": 52, "long": 205}
"""Roughly, to choose how many requests a cell sends."""
HEAVY = 100_000
"""Tokens in flight from which a cell is run in one repetition only: a padded server needs minutes for it."""


@dataclass(frozen=True)
class Cell:
    """A fixed list of requests, the same for every server, sent by closed-loop clients."""

    kind: str
    group: int
    clients: int
    tokens: int
    """How many tokens to send about; at least `rounds` requests a client all the same."""
    rounds: int = 4

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.group} × {self.clients}"

    @property
    def is_heavy(self) -> bool:
        return self.clients * self.group * TOKENS_A_TEXT[self.kind] >= HEAVY

    @cached_property
    def requests(self) -> list[list[int]]:
        """The places of the texts of each request in the kind's pool."""
        least = self.clients * (1 if self.is_heavy else self.rounds if self.group == 1 else 2)
        count = max(least, round(self.tokens / (TOKENS_A_TEXT[self.kind] * self.group)))
        pool = KINDS[self.kind].pool
        return [[place % pool for place in range(i * self.group, (i + 1) * self.group)] for i in range(count)]

    @property
    def texts(self) -> list[str]:
        """The pool."""
        return make_texts(self.kind)


def grid(tokens: int) -> list[Cell]:
    """List every cell, single texts first, each sending about `tokens` tokens."""
    return [Cell(kind, group, clients, tokens) for group in GROUPS for kind in KINDS for clients in CLIENTS]


def quick_grid() -> list[Cell]:
    """List the few cells of a smoke run."""
    return [Cell("mixed", 1, 1, 1500), Cell("mixed", 1, 8, 1500), Cell("mixed", 32, 1, 2000, rounds=1)]
