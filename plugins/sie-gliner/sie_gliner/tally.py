"""Bounds how much one text may be answered with, where its length and its labels multiply. It knows no model."""

from __future__ import annotations

import threading

from sie_core.contracts import InvalidInput

MOST = 10_000
"""Entities of one text with `multi_label`, and relations: about a megabyte. Without `multi_label` there are at most
twice as many entities as words."""


class Tally:
    """Counts what the windows of one text have; they may be read on several threads.

    Args:
        where: The text, for who sent it.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._entities = 0
        self._relations = 0

    def add_entities(self, count: int) -> None:
        """Count what was found in a window.

        Raises:
            InvalidInput: With it the text has too many.
        """
        with self._lock:
            self._entities += count
        self._require(self._entities, "entities", "options.threshold", "leave out options.multi_label, ")

    def add_relations(self, count: int) -> None:
        """Count as `add_entities` does."""
        with self._lock:
            self._relations += count
        self._require(self._relations, "relations", "options.relation_threshold")

    def _require(self, count: int, what: str, param: str, remedy: str = "") -> None:
        if count > MOST:
            raise InvalidInput(
                f"{param}: {self._where} has more than {MOST} {what} above it, and no text is answered with more; "
                f"raise it, {remedy}or send fewer labels.",
                param=param,
            )
