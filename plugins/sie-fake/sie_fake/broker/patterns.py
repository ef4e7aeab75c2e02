"""Patterns of subjects: `*` stands for a token, `>` for the rest."""

from __future__ import annotations

from collections.abc import Iterable


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern."""
    wanted, given = pattern.split("."), subject.split(".")
    for position, token in enumerate(wanted):
        if token == ">":
            return len(given) > position
        if position >= len(given) or token not in ("*", given[position]):
            return False
    return len(wanted) == len(given)


def overlap(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether a subject could match both of two patterns, each given as its tokens."""
    first, second = list(one), list(other)
    for left, right in zip(first, second, strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(first) == len(second)
