"""Checks the form of model ids and profile names.

A well-formed id is safe as a part of a path below a folder.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._/:@-]*\Z")
_PROFILE = re.compile(r"[A-Za-z0-9._-]+\Z")
LONGEST_ID = 256
"""Characters of a model's id."""

ID_RULE = "letters, digits and . _ / : @ -, a letter or digit first, no '..', at most 256 characters"


def is_model_id(value: str) -> bool:
    """Whether `value` may name a model; `..` is refused wherever it stands."""
    return len(value) <= LONGEST_ID and ".." not in value and _ID.match(value) is not None


@lru_cache(1024)
def is_profile_name(value: str) -> bool:
    """Whether `value` may name a profile; no `:`, which separates it from the model's id."""
    return _PROFILE.match(value) is not None
