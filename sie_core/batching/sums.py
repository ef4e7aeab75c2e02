"""Sums of what lies before a place, where places are added and removed at any time."""

from __future__ import annotations

from typing import Final

_TOP: Final = 1 << 48
"""Bounds the places."""


class PrefixSums:
    """A Fenwick tree over the places 0 to 2**48, of which only the nodes in use are stored.

    P. M. Fenwick, "A New Data Structure for Cumulative Frequency Tables", Software: Practice and Experience 1994.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}

    def add(self, place: int, amount: int) -> None:
        """Add an amount at a place."""
        nodes, node = self._nodes, place + 1
        while node <= _TOP:
            if total := nodes.get(node, 0) + amount:
                nodes[node] = total
            else:
                nodes.pop(node, None)
            node += node & -node

    def up_to(self, place: int) -> int:
        """Return the sum of the amounts at a place and before it."""
        nodes, node, total = self._nodes, place + 1, 0
        while node > 0:
            total += nodes.get(node, 0)
            node &= node - 1
        return total
