"""A request is settled once, whoever else settles it, forgets it or closes the loop at that moment."""

import asyncio
import time

import pytest

from sie_core.contracts import InferenceError, InferenceReply, Timing, Usage
from sie_core.engine.requests.inflight import Flight
from tests.engine.conftest import request

OUTCOMES = pytest.mark.parametrize(
    "tell",
    [
        lambda flight: flight.succeed(InferenceReply([], Timing(), Usage())),
        lambda flight: flight.fail(InferenceError("DEADLINE_EXCEEDED", "Too late.")),
    ],
    ids=["answered", "failed"],
)


class Left(Flight):
    """One whose client leaves between its being settled by somebody and its being told."""

    def settle(self):
        won = super().settle()
        if won:
            self.future.cancel()
            assert not super().settle()
            self.forget()
        return won


class ClosedBehindOnesBack(asyncio.SelectorEventLoop):
    """A loop that is closed right after somebody looked whether it is, while `unseen`."""

    unseen = False

    def is_closed(self):
        return not self.unseen and super().is_closed()


def flight(kind):
    now = time.monotonic()
    return kind(request("test/model", "text"), model=None, lease=None, task=None, arrived=now, now=now)


@OUTCOMES
async def test_a_client_that_leaves_as_its_answer_comes_is_told_nothing_and_nobody_is_harmed(tell):
    left = flight(Left)
    await asyncio.to_thread(tell, left)
    await asyncio.sleep(0)
    assert left.settled
    assert left.future.cancelled()


@OUTCOMES
def test_an_answer_that_comes_while_the_loop_is_closed_harms_nobody(tell):
    async def ask():
        return flight(Flight)

    with asyncio.Runner(loop_factory=ClosedBehindOnesBack) as runner:
        asked, loop = runner.run(ask()), runner.get_loop()
    loop.unseen = True
    tell(asked)
    loop.unseen = False
    assert asked.settled
