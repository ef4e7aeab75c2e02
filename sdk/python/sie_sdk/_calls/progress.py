"""A bar of tqdm where there is one; this package does not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol


class Bar(Protocol):
    """What is used of a bar."""

    def update(self, n: int) -> object:
        """Say that `n` more are done."""
        ...

    def close(self) -> object:
        """Leave it as it stands."""
        ...


class _Nothing:
    def update(self, n: int) -> None:
        pass

    def close(self) -> None:
        pass


def bar(wanted: bool | None, total: int | None) -> Callable[[], Bar]:
    """Return what opens a bar of `total` items; where None is wanted, only on a terminal and where tqdm is installed.

    Raises:
        ImportError: One is wanted and tqdm is not installed.
    """
    if wanted is False:
        return _Nothing
    try:
        tqdm = import_module("tqdm.auto").tqdm
    except ImportError:
        if wanted:
            raise ImportError("progress=True needs tqdm: pip install tqdm, or leave `progress` out") from None
        return _Nothing

    def opened() -> Bar:
        made: Bar = tqdm(total=total, unit="item", disable=None if wanted is None else False)
        return made

    return opened
