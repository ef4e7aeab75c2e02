"""Cuts a batch into passes: rows of like length where they are padded, equal shares where not. It knows no tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sie_gliner.rows import Row

MOST_PADDING = 0.05
"""Which part of a pass may be padding."""
PASS = 32
"""How many tokens of padding cost no more than one pass more does; measured on a CPU, with DeBERTa inside."""
SHARE = 1024
"""How many tokens of a pass without padding are enough; more gain nothing and take memory."""
DEVICE_PASS = 2048
"""The same on an accelerator, where a pass of few tokens takes as long as starting its some hundred kernels does; an
estimate."""
FEW = 4
"""From how many rows a thread on equal shares come out nearly equal."""


def of_equal_words(rows: Sequence[Row]) -> list[list[int]]:
    """Give the places of the rows of equally many words, together."""
    groups: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.words, []).append(place)
    return list(groups.values())


def chunks(rows: Sequence[Row], of_pass: int = PASS) -> Iterator[list[int]]:
    """Give the places of the rows of each pass, shortest rows first.

    Every pass of a bi-encoder encodes the labels anew, so they count like a pass.

    Args:
        rows: What is run.
        of_pass: How many tokens of padding cost no more than one pass more does.
    """
    free = of_pass + sum(len(label) for label in rows[0].prompt.rows)
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


def shares(rows: Sequence[Row], threads: int) -> list[list[int]]:
    """Give the places of the rows of each pass, of about as many tokens each and as many for every thread.

    A few rows are one pass, for all threads together: shares of them would leave a thread without work. Every pass of
    a bi-encoder encodes the labels anew, so it must be worth that.
    """
    lengths = [len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=lengths.__getitem__)
    if len(rows) < FEW * threads:
        return [order]
    total, worth = sum(lengths), max(SHARE, 4 * sum(len(label) for label in rows[0].prompt.rows))
    passes: list[list[int]] = [[] for _ in range(threads * math.ceil(total / (threads * worth)))]
    before = 0
    for place in order:
        middle = before + lengths[place] / 2
        passes[int(middle * len(passes) / total)].append(place)
        before += lengths[place]
    return [each for each in passes if each]
