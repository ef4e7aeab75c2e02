"""What becomes of a check: it passes, fails, is skipped, or does not come to an end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from unittest import SkipTest

from sie_core.plugins.calls import Calls, HungError

P = TypeVar("P")
CHECK_LIMIT_S = 60.0
"""Upper bound in seconds on a check of a part that may hang: a sound one takes a second."""


class Skipped(SkipTest):
    """A check does not apply to a part; the message says why. Test runners count it as a skip."""


def reason(error: BaseException) -> str:
    """Say why a check failed: its message; without one, the line that fails."""
    if isinstance(error, AssertionError):
        frames = traceback.extract_tb(error.__traceback__)
        return str(error) or f"`{frames[-1].line}` does not hold" if frames else str(error)
    return f"{type(error).__name__}: {error}"


def bounded(check: Callable[[P], None]) -> Callable[[P], None]:
    """Have a check fail that does not come to an end."""

    @wraps(check)
    def within(part: P) -> None:
        try:
            Calls().within(check.__name__, CHECK_LIMIT_S, lambda: check(part))
        except HungError as error:
            raise AssertionError(f"a method hangs, or is far too slow: the check {error}") from None

    return within
