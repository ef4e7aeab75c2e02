"""Parts of error messages: values cut to a readable length, and names near a mistyped one."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterable
from datetime import date

from sie_core.likeness import closest

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 100
_shown.maxlevel = 3
_LONGEST_QUERY = 256
"""Characters of an unknown name that are compared with those that exist."""
_LEAST_LIKE = 0.7
"""The least likeness of a suggested name: a short unknown one matches parts of many."""
_NEAR_THE_BEST = 0.15
"""By how much a suggested name may be less similar than the most similar one."""


def short(value: object) -> str:
    """Write `value` as Python would, cut in the middle if it is long."""
    return _shown.repr(value)


def quote_it(value: object) -> str:
    """Describe how to quote a text that YAML reads as something else: `no`, `on`, `1`; empty otherwise."""
    if isinstance(value, bool):
        return " YAML reads yes, no, on, off, true and false as booleans: put the word that is meant in quotes."
    if isinstance(value, (int, float, date)):
        return " Put a text that looks like a number or a date in quotes."
    return ""


def near(value: str, known: Iterable[str], limit: int = 3, preferred: Collection[str] = ()) -> list[str]:
    """Return the known names most similar to `value`, the `preferred` ones first, at most `limit`.

    None is much less similar than the best: a short name resembles nearly anything in part, so a fixed bound is not
    enough. If `value` is a name without its organisation, only names that end in it are returned.
    """
    found = closest(value[:_LONGEST_QUERY], known, _LEAST_LIKE)
    names = [name for like, name in found if like >= found[0][0] - _NEAR_THE_BEST]
    without_organisation = [name for name in names if name.lower().rpartition("/")[2] == value.lower()]
    return sorted(without_organisation or names, key=lambda name: name not in preferred)[:limit]


def did_you_mean(value: str, known: Iterable[str], preferred: Collection[str] = ()) -> str:
    """Write a question with the nearest names, the `preferred` ones first; empty if no name is near."""
    names = near(value, list(known), preferred=preferred)
    return f" Did you mean {' or '.join(names)}?" if names else ""


def place_in(source: str, text: str, key: str) -> str:
    """Write where a key stands in a config, as `model.yaml, line 3: `; without the line if it is not found."""
    name, line = source.rpartition("/")[2], line_of(text, key)
    if not name:
        return ""
    return f"{name}: " if line is None else f"{name}, line {line}: "


def line_of(text: str, key: str) -> int | None:
    """Return the first line of a YAML text with a key, counted from 1; None if there is none."""
    pattern = re.compile(rf"""[\s{{-]*(['"]?){re.escape(key)}\1\s*:""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)
