"""Parts of error messages: values cut to a readable length, and names near a mistyped one."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable

from rapidfuzz import fuzz, process, utils

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 100
_shown.maxlevel = 3
_LONGEST_QUERY = 256
_NEAR_THE_BEST = 15.0
"""How much less like a value, of 100, a name may be than the one most like it."""


def short(value: object) -> str:
    """Write `value` as Python would, cut in the middle where it is long."""
    return _shown.repr(value)


def near(value: str, known: Iterable[str], limit: int = 3, preferred: Collection[str] = ()) -> list[str]:
    """Return the known names most like `value`, best first, at most `limit`, none much less like it than the best.

    A short name is like nearly anything in part, so a bound for each by itself is not enough. Those `preferred` come
    before the others.
    """
    found = process.extract(
        value[:_LONGEST_QUERY],
        known,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=None,
        score_cutoff=60,
    )
    names = [str(name) for name, likeness, _ in found if likeness >= found[0][1] - _NEAR_THE_BEST]
    return sorted(names, key=lambda name: name not in preferred)[:limit]


def did_you_mean(value: str, known: Iterable[str], preferred: Collection[str] = ()) -> str:
    """Word the near names as a sentence that follows another, those `preferred` first; empty where nothing is near."""
    names = near(value, list(known), preferred=preferred)
    return f" Did you mean {' or '.join(names)}?" if names else ""
