"""When a sidecar asks for more slices: at once while it is idle, seldom while it is quick. Time is the test's own."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.load import most_cost
from sie_cluster.sidecar.queue import credit as credits_
from sie_cluster.sidecar.queue.credit import FIRST, RECENT, STEP, Credit, Quantum, credit_of_pull

SETTINGS = ClusterSettings(max_concurrent_batches=2, batcher_max_batch_requests=4)


@dataclass
class Time:
    now: float = 0.0
    _calls: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self.now + seconds, len(self._calls), call))

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = end


@dataclass(eq=False)
class Pull:
    credit: int = 0
    requests: int = 0

    def add_credit(self, messages: int) -> None:
        self.credit += messages
        self.requests += 1

    async def close(self) -> None:
        return


def quantum_after(*slices: tuple[int, float]) -> float:
    quantum = Quantum(0.002, 0.015, 0.05)
    for count, seconds in slices:
        for _ in range(count):
            quantum.answered(seconds)
    return quantum.seconds


@pytest.mark.parametrize(
    ("slices", "seconds"),
    [
        ([], 0.002),
        ([(STEP - 1, 0.01)], 0.002),
        ([(STEP, 0.01)], 0.004),
        ([(10 * STEP, 0.05)], 0.015),
        ([(10 * STEP, 0.051)], 0.002),
        ([(10 * STEP, 0.01), (RECENT // 2, 1.0)], 0.0075),
        ([(10 * STEP, 0.01), (10 * STEP, 1.0)], 0.002),
        ([(10 * STEP, 1.0), (10 * STEP, 0.01)], 0.015),
    ],
)
def test_the_quantum_grows_while_the_p50_is_under_its_target(slices: Any, seconds: float) -> None:
    assert quantum_after(*slices) == pytest.approx(seconds)


def test_a_least_above_the_most_counts() -> None:
    assert Quantum(0.02, 0.01, 1.0).seconds == 0.02


def working(credit: Credit, slices: int = 0, cost: int = 1) -> Pull:
    """A pull that has used up all its credit, of which so many slices are at work."""
    pull = Pull()
    credit.open(pull)
    for _ in range(max(1, slices)):
        credit.take(pull, cost)
    if not slices:
        credit.give(pull, cost, idle=True)
    pull.credit = pull.requests = 0
    return pull


def test_credit_is_gathered_for_a_quantum_and_each_pull_asks_once() -> None:
    time = Time()
    credit = Credit(SETTINGS, time.later)
    pulls = working(credit), working(credit)
    for pull in (*pulls, pulls[0]):
        credit.give(pull, idle=False)
    time.pass_by(0.0019)
    assert [pull.requests for pull in pulls] == [0, 0]
    time.pass_by(0.0002)
    assert [(pull.credit, pull.requests) for pull in pulls] == [(2, 1), (1, 1)]
    credit.give(pulls[1], idle=False)
    time.pass_by(0.002)
    assert pulls[1].credit == 2


def test_where_several_have_work_each_has_its_share_of_the_cost_and_a_batch_of_slices_at_least() -> None:
    time = Time()
    credit, cost = Credit(SETTINGS, time.later), most_cost(SETTINGS) // 4

    def answered(pull: Pull, cost: int, times: int) -> None:
        for _ in range(times):
            credit.give(pull, cost, idle=False)
        time.pass_by(1.0)

    flood = working(credit, 8, cost)  # all that it had
    answered(flood, cost, 1)
    assert flood.credit == 1  # it is alone
    credit.take(flood, cost)
    flood.credit = 0
    other = working(credit, 1)
    answered(flood, cost, 4)
    assert flood.credit == 0  # four are held still, a batch's worth, and more than half of the cost
    answered(flood, cost, 1)
    assert flood.credit == 1
    answered(other, 1, 1)
    assert (flood.credit, other.credit) == (5, 1)  # alone again


def test_a_pull_that_has_less_than_its_share_has_all_its_credit_back() -> None:
    time = Time()
    credit = Credit(SETTINGS, time.later)
    working(credit, 1, most_cost(SETTINGS))
    small = working(credit, 8)
    for _ in range(3):
        credit.give(small, 1, idle=False)
    time.pass_by(1.0)
    assert small.credit == 3


def test_an_idle_sidecar_gives_all_credit_back_at_once() -> None:
    time = Time()
    credit = Credit(SETTINGS, time.later)
    pull, other = working(credit), working(credit)
    credit.give(other, idle=False)
    credit.give(pull, idle=True)
    assert (pull.credit, other.credit) == (1, 1)
    time.pass_by(1.0)
    assert (pull.credit, other.credit) == (1, 1)


def test_half_of_a_pulls_credit_waits_for_no_quantum() -> None:
    credit = Credit(SETTINGS, Time().later)
    pull = working(credit)
    for given in range(credit_of_pull(SETTINGS)):
        assert pull.credit == 4 * (given // 4)
        credit.give(pull, idle=False)
    assert (pull.credit, pull.requests) == (8, 2)


def test_a_pull_has_credit_for_one_message_until_that_has_told_what_they_cost() -> None:
    credit, new = Credit(SETTINGS, Time().later), Pull(FIRST)
    credit.open(new)
    credit.give(working(credit, 1), 1, idle=True)
    assert new.credit == FIRST
    new.credit = 0  # it came, and nobody waits for it
    credit.give(new, idle=True)
    assert new.credit == FIRST
    new.credit = 0
    credit.take(new, 100)
    assert new.credit == credit_of_pull(SETTINGS) - FIRST


def test_of_large_messages_all_pulls_together_bring_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each at least one, so that none stands still; there is room again as they are answered."""
    picture = 400_000
    monkeypatch.setattr(credits_, "MOST_COST", 10 * picture)
    time = Time()
    credit = Credit(SETTINGS, time.later)
    pulls = [Pull(FIRST) for _ in range(20)]
    at_work: list[Pull] = []
    for pull in pulls:
        credit.open(pull)

    def deliver() -> None:
        while willing := [pull for pull in pulls if pull.credit]:
            for pull in willing:
                pull.credit -= 1
                credit.take(pull, picture)
                at_work.append(pull)

    deliver()
    assert set(at_work) == set(pulls)
    assert 20 <= len(at_work) < 30
    for _ in range(100):
        credit.give(at_work.pop(0), picture, idle=False)
        time.pass_by(1.0)
        deliver()
        assert set(at_work) == set(pulls)
        assert len(at_work) < 30


def test_a_slice_that_is_fetched_counts_as_one_that_fills_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    credit = Credit(SETTINGS, Time().later)
    credit.open(pull := Pull(FIRST))
    pull.credit = 0
    credit.take(pull, 1 << 30)
    assert pull.credit == credit_of_pull(SETTINGS) - FIRST
