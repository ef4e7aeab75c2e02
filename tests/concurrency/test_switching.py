"""The interpreter's lock changes hands more often as long as anything large is at work."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from sie_core.concurrency.switching import SHORT_S, Switching

USUAL_S = 0.003


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before)


def test_the_interval_is_short_until_the_last_large_request_is_through() -> None:
    switching = Switching()
    with switching.shortened():
        with switching.shortened():
            assert sys.getswitchinterval() == pytest.approx(SHORT_S)
        assert sys.getswitchinterval() == pytest.approx(SHORT_S)
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_a_large_request_that_fails_leaves_the_usual_interval() -> None:
    with pytest.raises(ValueError, match="its body"), Switching().shortened():
        raise ValueError("its body")
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_a_shorter_interval_that_an_operator_set_stays() -> None:
    sys.setswitchinterval(SHORT_S / 5)
    with Switching().shortened():
        assert sys.getswitchinterval() == pytest.approx(SHORT_S / 5, abs=2e-6)
