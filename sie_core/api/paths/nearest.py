"""Names the route that a mistaken path comes nearest to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import combinations
from typing import Final

_PARAMETER: Final = re.compile(r"\{(\w+)[^}]*\}")
_LIKE: Final = 0.75
"""Less like are paths of services that this is not, such as `/v1/completions`."""
_LONGEST: Final = 256
"""Characters of a path that are compared with those that are served."""


def nearest_path(path: str, templates: Iterable[str]) -> str | None:
    """Return the template whose words are most like those of `path`, the shortest of equals; None: none is like it."""
    asked = _words(path[:_LONGEST])
    by_length = sorted(templates, key=len)
    found = [(_likeness(asked, words), template) for template in by_length if (words := _words(template))]
    like, nearest = max(found, key=lambda each: each[0])
    return nearest if like >= _LIKE else None


def shown(template: str) -> str:
    """Write a template for readers: `{model}` for `{model:path}`."""
    return _PARAMETER.sub(r"{\1}", template)


def _likeness(one: set[str], other: set[str]) -> float:
    """Tell how like two paths are by their words in any order, from 0 to 1; 1 where one has all of the other."""
    if (common := one & other) in (one, other):
        return 1.0
    shared = sorted(common)
    texts = [" ".join([*shared, *sorted(rest)]) for rest in ((), one - common, other - common)]
    return max(SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in combinations(texts, 2))


def _words(path: str) -> set[str]:
    return {word for word in _PARAMETER.sub("", path).split("/") if word}
