"""Bounds the answer for one text, whose size is a product of its length and its labels."""

from __future__ import annotations

import threading

from sie_core.contracts import InvalidInput

MOST = 10_000
"""Entities of one text with `multi_label`, and relations: about a megabyte. Without `multi_label` there are at most
twice as many entities as words."""


class Tally:
    """Counts the entities and relations of one text's windows; they may be read on several threads.

    Args:
        where: Name of the text for the client.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, int]] = {"entities": {}, "relations": {}}
        self._totals = {"entities": 0, "relations": 0}

    def count_entities(self, window: int, count: int) -> None:
        """Count the entities that begin in a window's own characters; `window` is the first of these characters.

        A window may be read again when its batch is retried; it counts once.

        Raises:
            InvalidInput: The text now has too many.
        """
        self._count("entities", window, count, "options.threshold", "leave out options.multi_label, ")

    def count_relations(self, window: int, count: int) -> None:
        """Count as `count_entities` does; a relation begins at its head."""
        self._count("relations", window, count, "options.relation_threshold")

    def _count(self, what: str, window: int, count: int, param: str, remedy: str = "") -> None:
        with self._lock:
            self._totals[what] += count - self._counts[what].get(window, 0)
            self._counts[what][window] = count
            total = self._totals[what]
        if total > MOST:
            raise InvalidInput(
                f"{param}: {self._where} has more than {MOST} {what} above it, and no text is answered with more; "
                f"raise it, {remedy}or send fewer labels.",
                param=param,
            )
