"""Builds the environments that tests need beside this one: `python -m tests.environments`, while the checks run.

A test builds the one it needs where it is not there, and is skipped where it cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.clients.conftest import CLIENTS, PACKAGES, WITH_EVERY_ROW, client_environment, javascript_environment
from tests.gliner.library import build
from tests.helm.engine import helm_environment
from tests.sglang.released import released_wheel
from tests.text.environments import TRANSFORMERS, text_environment


def builders() -> Iterator[Callable[[], object]]:
    """List what builds each, that of gliner first: every worker of pytest waits for it."""
    yield build
    yield from (partial(client_environment, name) for name in CLIENTS if name not in WITH_EVERY_ROW)
    yield from (partial(javascript_environment, name) for name in PACKAGES)
    yield from (partial(text_environment, name) for name in TRANSFORMERS)
    yield helm_environment
    yield released_wheel


if __name__ == "__main__":
    for each in builders():
        try:
            each()
        except pytest.skip.Exception as skipped:
            print(skipped)
