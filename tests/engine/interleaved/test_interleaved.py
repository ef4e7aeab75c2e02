"""Every request is answered once, in order and with the right count, whatever happens in whatever order."""

from __future__ import annotations

import time

import pytest

from tests.engine.interleaved.scenario import Scenario

SECONDS = 8.0
LEAST = 500


@pytest.mark.timeout(120)
def test_whatever_the_order_each_request_is_answered_once() -> None:
    until, seed = time.monotonic() + SECONDS, 0
    while seed < LEAST or time.monotonic() < until:
        try:
            Scenario(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seed += 1
    print(f"{seed} interleavings")
