"""What waits of one model: whose request is next among clients, and among the requests of one."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from sie_kit.checks.scheduler import Asked

from sie_core.batching.queue import ModelQueue
from sie_core.contracts import BatchLimits, Priority, QueuedUnit, Unit

LIMITS = BatchLimits(64, 16)


def ask(
    queue: ModelQueue,
    name: object,
    *costs: int,
    client: object = None,
    priority: Priority | None = None,
    key: str = "k",
) -> Asked:
    asked = Asked(name, client=client, priority=priority)
    queue.add(asked, [QueuedUnit(Unit(place, cost, key, payload=None), asked) for place, cost in enumerate(costs)])
    return asked


def take(queue: ModelQueue, most: int = 1) -> list[object]:
    """Take units of the next key up to a cost, at least one; give the names of their requests in their order."""
    key, _ = queue.first()
    taken = queue.take(key, lambda cost, requests, waiting: cost <= most, 0.0)
    return [waiting.request.name for waiting, units in taken.items() for _ in units]  # type: ignore[attr-defined]


def drained(queue: ModelQueue) -> list[object]:
    order: list[object] = []
    while queue.units:
        order += take(queue)
    return order


def test_requests_of_one_client_that_are_as_large_run_in_the_order_they_came() -> None:
    queue = ModelQueue(LIMITS)
    for name in "abc":
        ask(queue, name, 5, 5, client="one")
    assert drained(queue) == list("aabbcc")


def test_a_short_request_overtakes_a_long_one_of_its_client_until_that_was_waited_for_as_long_as_it_runs() -> None:
    queue = ModelQueue(LIMITS)
    ask(queue, "long", *[10] * 10, client="one")
    order: list[object] = []
    for number in range(40):
        ask(queue, number, 10, client="one")
        order += take(queue)
    assert 0 < sum(name != "long" for name in order[: order.index("long")]) <= 10
    assert [name for name in order if name == "long"] == ["long"] * 10


def test_a_client_orders_its_own_requests_by_priority_and_gets_no_more_for_it() -> None:
    queue = ModelQueue(LIMITS)
    for name in range(20):
        ask(queue, f"modest {name}", 10, client="modest")
    for priority in ("bulk", None, "interactive"):
        for _ in range(10):
            ask(queue, priority, 10, client="eager", priority=priority)
    order = drained(queue)
    eager = [name for name in order if not str(name).startswith("modest")]
    assert eager == ["interactive"] * 10 + [None] * 10 + ["bulk"] * 10
    assert sum(str(name).startswith("modest") for name in order[:20]) == 10


def test_a_priority_that_this_release_does_not_know_is_none() -> None:
    queue = ModelQueue(LIMITS)
    for priority in ("bulk", "urgent", "interactive"):
        ask(queue, priority, 10, client="one", priority=priority)  # type: ignore[arg-type]
    assert drained(queue) == ["interactive", "urgent", "bulk"]


def test_what_is_cancelled_in_the_middle_is_not_run_and_not_counted() -> None:
    queue = ModelQueue(LIMITS)
    asked = [ask(queue, number, 10, 10, client="one") for number in range(6)]
    for number in (2, 0, 3):
        assert queue.cancel(asked[number]) == 2
    assert (queue.units, queue.cost, queue.waits(asked[0])) == (6, 60, 60)
    ask(queue, "again", 10, client="one")
    assert drained(queue) == ["again", 1, 1, 4, 4, 5, 5]


@pytest.mark.parametrize("requests", [1, 50])
def test_clients_share_a_model_equally_however_many_requests_one_has(requests: int) -> None:
    queue, ran = ModelQueue(LIMITS), Counter[object]()
    for client, many in (("greedy", requests), ("modest", 1)):
        for _ in range(many):
            ask(queue, client, 10, 10, client=client)
    for _ in range(100):
        for name in take(queue):
            ran[name] += 1
            if ran[name] % 2 == 0:
                ask(queue, name, 10, 10, client=name)
    assert abs(ran["greedy"] - ran["modest"]) <= 4


def test_a_request_of_nobody_known_is_a_client_of_its_own() -> None:
    queue = ModelQueue(LIMITS)
    ask(queue, "long", *[10] * 10)
    ask(queue, "short", 10)
    assert take(queue) == ["short"]


def test_who_was_away_is_not_compensated_for_it() -> None:
    queue = ModelQueue(LIMITS)
    ask(queue, "busy", *[10] * 100, client="busy")
    for _ in range(50):
        take(queue)
    ask(queue, "new", *[10] * 100, client="new")
    ran = Counter(name for _ in range(60) for name in take(queue))
    assert ran["busy"] >= 10


def test_a_batch_holds_one_key_and_the_next_key_is_that_of_whose_turn_it_is() -> None:
    queue = ModelQueue(LIMITS)
    ask(queue, "first", 10, key="a")
    ask(queue, "second", 20, key="b")
    ask(queue, "third", 30, key="a")
    assert take(queue, 100) == ["first", "third"]
    assert take(queue, 100) == ["second"]


@pytest.mark.parametrize("most", [1, 9])
def test_what_runs_before_a_request_is_told_as_it_then_runs(most: int) -> None:
    for seed in range(30):
        random, queue = Random(seed), ModelQueue(LIMITS)
        for name in range(random.randint(0, 20)):
            ask(queue, name, *[10] * random.randint(1, most), client=random.choice("ab"))
        asked = Asked("asked", client=random.choice("abc"))
        size = random.randint(1, 60)
        before, _ = queue.before(asked, size)
        queue.add(asked, [QueuedUnit(Unit(0, size, "k", payload=None), asked)])
        ran = 0
        while asked in queue.requests:
            for units in queue.take("k", lambda *_: False, 0.0).values():
                ran += sum(unit.unit.cost for unit in units)
        # Where short requests overtook long ones of their client, these count as before it although they end later.
        assert before >= ran - 10 * most
        assert before <= ran + 10 or most > 1


def test_an_empty_queue_remembers_nobody() -> None:
    queue, random = ModelQueue(LIMITS), Random(1)
    asked = [ask(queue, name, *[random.randint(1, 9)] * 5, client=name % 7) for name in range(50)]
    for each in asked[::3]:
        assert queue.cancel(each) == 5
        assert queue.cancel(each) == 0
    drained(queue)
    assert (queue.cost, queue.units) == (0, 0)
    assert not queue.requests
    assert not queue.clients
    assert not queue._starts
    assert not queue._ahead._nodes


def test_units_that_come_later_belong_to_their_request_and_those_expected_count_before_others() -> None:
    queue = ModelQueue(LIMITS)
    long = Asked("long", client="one", more_cost=90)
    queue.add(long, [QueuedUnit(Unit(0, 10, "k", payload=None), long)])
    other = Asked("other", client="two")
    assert queue.before(other, 200)[0] == 300
    long.more_cost = 80
    queue.add(long, [QueuedUnit(Unit(1, 10, "k", payload=None), long)])
    assert queue.before(other, 200)[0] == 300
    long.more_cost = 0
    assert drained(queue) == ["long", "long"]
