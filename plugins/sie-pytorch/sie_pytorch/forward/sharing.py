"""Splits a batch into shares of sequences, for a thread each."""

from __future__ import annotations

import math
from collections.abc import Sequence

ENOUGH = 1024
"""Tokens of a share that are enough: larger ones gain nothing and take memory."""
FEW = 4
"""Sequences a thread from which on shares come out nearly equal."""


def shares(lengths: Sequence[int], threads: int, enough: int = ENOUGH) -> list[list[int]]:
    """Return the indices of the sequences of each share, shortest first, with about equal numbers of tokens.

    There are as many shares for one thread as for another. A few sequences are one share, computed by all threads
    together: several would leave a thread without work.

    Args:
        lengths: Tokens of each sequence.
        threads: Threads that take one share after another.
        enough: Tokens of a share that are enough.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    if len(lengths) < FEW * threads:
        return [order]
    total = sum(lengths)
    found: list[list[int]] = [[] for _ in range(threads * math.ceil(total / (threads * enough)))]
    before = 0
    for number in order:
        middle = before + lengths[number] / 2
        found[int(middle * len(found) / total)].append(number)
        before += lengths[number]
    return [share for share in found if share]
