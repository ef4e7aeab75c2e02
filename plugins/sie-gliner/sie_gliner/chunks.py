"""Cuts a batch into passes of rows of like length, so that little of a pass is padding. It knows rows, no tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sie_gliner.rows import Row

MOST_PADDING = 0.05
"""Which part of a pass may be padding."""
PASS = 32
"""How many tokens of padding cost no more than one pass more does; measured on a CPU, with DeBERTa inside."""


def chunks(rows: Sequence[Row]) -> Iterator[list[int]]:
    """Give the places of the rows of each pass, shortest rows first.

    Every pass of a bi-encoder encodes the labels anew, so they count like a pass.
    """
    free = PASS + sum(len(label) for label in rows[0].prompt.rows)
    chunk: list[int] = []
    filled = 0
    for place in sorted(range(len(rows)), key=lambda each: len(rows[each].ids)):
        length = len(rows[place].ids)
        size = length * (len(chunk) + 1)
        if size - filled - length > max(free, MOST_PADDING * size):
            yield chunk
            chunk, filled = [], 0
        chunk.append(place)
        filled += length
    yield chunk
