"""Names the route that a mistaken path comes nearest to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rapidfuzz import fuzz, process

_PARAMETER: Final = re.compile(r"\{(\w+)[^}]*\}")
_LIKE: Final = 75.0
"""Points of 100. Below lie paths of services that this is not, such as `/v1/completions`."""
_LONGEST: Final = 256
"""Characters of a path that are compared with those that are served."""


def nearest_path(path: str, templates: Iterable[str]) -> str | None:
    """Return the template whose words are most like those of `path`, the shortest of equals; None: none is like it."""
    words = {template: _words(_PARAMETER.sub("", template)) for template in sorted(templates, key=len)}
    found = process.extractOne(
        _words(path[:_LONGEST]),
        {template: each for template, each in words.items() if each},
        scorer=fuzz.token_set_ratio,
        score_cutoff=_LIKE,
    )
    return None if found is None else str(found[2])


def shown(template: str) -> str:
    """Write a template for readers: `{model}` for `{model:path}`."""
    return _PARAMETER.sub(r"{\1}", template)


def _words(path: str) -> str:
    return path.replace("/", " ").strip()
