"""A gateway refuses what would wait too long or fill the queue, and says when to come back."""

from __future__ import annotations

import pytest
from sie_cluster.gateway.capacity.admission import FORGET_S, LOADED, Admission, Ticket
from sie_cluster.gateway.capacity.lanes import Lane

from sie_core.contracts import InferenceError

LANE = Lane("_default", "default", "any", "default")


class Simulation:
    """A gateway whose workers answer so many requests a second, in order."""

    def __init__(self, places: int = 100_000) -> None:
        self.now = 0.0
        self.admission = Admission(places, lambda: self.now)
        self.waiting: list[Ticket] = []
        self.refusals: list[InferenceError] = []

    def send(self, subject: str = "a", cost: float = 100.0, left_s: float = 120.0) -> bool:
        try:
            ticket = self.admission.enter(LANE, subject, cost, left_s)
        except InferenceError as refusal:
            self.refusals.append(refusal)
            return False
        self.waiting.append(ticket)
        return True

    def answer(self) -> None:
        self.admission.leave(self.waiting.pop(0), answered=True)

    def run(self, seconds: float, *, sent_a_s: int, answered_a_s: int, left_s: float = 120.0) -> int:
        """Return how many were answered."""
        answered, credit = 0, 0.0
        for _ in range(round(seconds * 100)):
            self.now += 0.01
            for _ in range(round(sent_a_s / 100)):
                self.send(left_s=left_s)
            credit += answered_a_s / 100
            while credit >= 1 and self.waiting:
                self.admission.leave(self.waiting.pop(0), answered=True)
                credit, answered = credit - 1, answered + 1
        return answered


def test_under_overload_nothing_waits_longer_than_it_may_and_workers_stay_busy() -> None:
    simulation = Simulation()
    answered = simulation.run(60, sent_a_s=300, answered_a_s=100)
    assert answered >= 0.99 * 60 * 100
    assert 25 < simulation.now - simulation.waiting[0].since < 33
    assert {refusal.code for refusal in simulation.refusals} == {"QUEUE_FULL"}
    assert all(1 <= (refusal.retry_after_s or 0) <= 120 for refusal in simulation.refusals)


def test_what_cannot_be_answered_by_its_deadline_is_refused() -> None:
    simulation = Simulation()
    simulation.run(15, sent_a_s=300, answered_a_s=100, left_s=5.0)
    assert len(simulation.waiting) == pytest.approx(500, rel=0.2)


def test_a_burst_after_few_requests_is_taken_as_nothing_is_known_of_the_rate_under_load() -> None:
    simulation = Simulation()
    for _ in range(100):
        simulation.now += 1.0
        assert simulation.send()
        simulation.admission.leave(simulation.waiting.pop(), answered=True)
    assert all(simulation.send() for _ in range(5000))


def test_the_first_answer_after_a_long_pause_brings_no_old_rate_back() -> None:
    simulation = Simulation()
    simulation.run(10, sent_a_s=300, answered_a_s=100)
    while simulation.waiting:
        simulation.admission.leave(simulation.waiting.pop(), answered=False)
    simulation.now += 2 * FORGET_S
    for _ in range(LOADED):
        assert simulation.send()
    simulation.answer()
    assert all(simulation.send() for _ in range(5000))


def test_an_empty_queue_takes_any_request() -> None:
    simulation = Simulation()
    simulation.run(10, sent_a_s=300, answered_a_s=100)
    for ticket in simulation.waiting:
        simulation.admission.leave(ticket, answered=True)
    assert simulation.send(cost=1e9, left_s=0.1)


def test_a_burst_that_is_over_leaves_nothing_that_refuses_later_requests() -> None:
    simulation = Simulation()
    for _ in range(300):
        simulation.send()
    while simulation.waiting:
        simulation.answer()
    simulation.now += 3600
    assert all(simulation.send() for _ in range(2))


def test_one_model_leaves_places_to_others() -> None:
    simulation = Simulation(places=100)
    assert sum(simulation.send("a") for _ in range(200)) == 75
    assert sum(simulation.send("b") for _ in range(200)) == 19
    assert sum(simulation.send("c") for _ in range(200)) >= 4
    assert simulation.send("d")


def long_lists(simulation: Simulation, clients: int, seconds: float, each_s: float) -> int:
    """Have clients send lists of 130 kB, each again after its answer, and one answer come each `each_s` seconds."""
    taken, next_at, end = 0, simulation.now + each_s, simulation.now + seconds
    while simulation.now < end:
        simulation.now += 0.05
        while len(simulation.waiting) < clients and simulation.send(cost=130_000.0):
            taken += 1
        if simulation.now >= next_at and simulation.waiting:
            simulation.answer()
            next_at += each_s
    return taken


@pytest.mark.parametrize("clients", [8, 32])
def test_short_requests_teach_nothing_about_long_ones(clients: int) -> None:
    simulation = Simulation()
    simulation.run(20, sent_a_s=300, answered_a_s=300)
    for _ in range(20):
        assert simulation.send(cost=30.0)
    for _ in range(3000):
        simulation.now += 1 / 300
        simulation.answer()
        simulation.send(cost=30.0)
    simulation.refusals.clear()
    while simulation.waiting:
        simulation.answer()
    long_lists(simulation, clients, 60, each_s=0.5)
    assert not simulation.refusals


def test_long_requests_are_refused_by_what_long_ones_took() -> None:
    simulation = Simulation()
    long_lists(simulation, 100, 120, each_s=1.0)
    assert len(simulation.waiting) == pytest.approx(30, abs=3)
    assert {refusal.code for refusal in simulation.refusals} == {"QUEUE_FULL"}
    assert "e+" not in "".join(refusal.message for refusal in simulation.refusals)


def test_answers_that_come_in_bursts_far_apart_tell_their_mean() -> None:
    simulation = Simulation()
    for _ in range(8):
        for _ in range(100):
            simulation.send()
        simulation.now += 20.0
        while simulation.waiting:
            simulation.answer()
    assert not simulation.refusals


def test_after_workers_stood_still_requests_are_taken_as_before() -> None:
    simulation = Simulation()
    simulation.run(20, sent_a_s=300, answered_a_s=100)
    simulation.now += 110.0
    for ticket in simulation.waiting:
        simulation.admission.leave(ticket, answered=False)
    simulation.waiting.clear()
    for number in range(200):
        taken = sum(simulation.send() for _ in range(100))
        assert taken == 100 or number < 20
        simulation.now += 1.0
        while simulation.waiting:
            simulation.answer()


def test_keys_that_nothing_is_in_flight_of_are_forgotten() -> None:
    simulation = Simulation()
    for number in range(20_000):
        simulation.send(str(number))
        simulation.admission.leave(simulation.waiting.pop(), answered=True)
    assert len(simulation.admission._keys) <= 4096
