"""What the batch former promises, one promise a test; times are made up, no clock runs."""

import weakref

from sie_core.batching import BatchFormer
from sie_core.contracts import BatchLimits, QueuedUnit, Unit
from sie_core.contracts.device.batching import AGE_S


def queued(cost=1, request="a", key="k", at=0.0, deadline=None, **fields):
    return QueuedUnit(Unit(item=0, cost=cost, key=key, payload=None), request, at, deadline, **fields)


def former(max_cost=100, max_requests=64, max_run_s=None, max_wait_s=0.01):
    return BatchFormer(BatchLimits(max_cost, max_requests, max_run_s, max_wait_s))


def drain(batches):
    taken = []
    while (batch := batches.take(0.0, device_busy=False)) is not None:
        taken.append(batch)
    return taken


def test_an_empty_queue_keeps_nothing_of_what_was_in_it_alive():
    class Key:
        """An inference key that holds an adapter, and the request that asked for it."""

    batches = former()
    for leave in (
        lambda batches, key: batches.take(0.0, False),
        lambda batches, key: batches.cancel(key),
        lambda batches, key: batches.expire(9.0),
    ):
        key = Key()
        batches.add([queued(key=key, request=key, deadline=5.0), queued(key=key, request=key)])
        held = weakref.ref(key)
        leave(batches, key)
        del key
        assert held() is None


def test_an_idle_device_gets_whatever_is_queued_at_once():
    batches = former(max_wait_s=1000)
    batches.add([queued(cost=3)])
    batch = batches.take(0.0, device_busy=False)
    assert (batch.cost, batch.requests, batch.key, batch.predicted_s) == (3, 1, "k", None)
    assert batches.take(0.0, device_busy=False) is None


def test_a_busy_device_is_waited_for_no_longer_than_the_limit():
    batches = former(max_wait_s=0.01)
    batches.add([queued(at=5.0)])
    assert batches.take(5.005, device_busy=True) is None
    assert batches.ready_at(5.005) == 5.01
    assert batches.take(5.01, device_busy=True) is not None


def test_a_full_batch_waits_for_nothing():
    by_cost = former(max_cost=4)
    by_cost.add([queued(cost=4)])
    by_requests = former(max_requests=2)
    by_requests.add([queued(request="a"), queued(request="b")])
    for batches in (by_cost, by_requests):
        assert batches.ready_at(0.0) == 0.0
        assert batches.take(0.0, device_busy=True) is not None


def test_units_run_cheapest_first_and_equals_in_the_order_they_came():
    batches = former()
    units = [queued(cost=cost, request=name) for cost, name in [(5, "a"), (2, "b"), (5, "c"), (1, "d")]]
    batches.add(units)
    batch = batches.take(0.0, device_busy=False)
    assert [unit.request for unit in batch.units] == ["d", "b", "a", "c"]


def test_the_oldest_unit_of_whose_turn_it_is_chooses_the_key():
    batches = former()
    batches.add([queued(key="x", request=1), queued(key="y", request=2), queued(key="x", request=3)])
    assert [(batch.key, batch.requests) for batch in drain(batches)] == [("x", 2), ("y", 1)]


def test_one_request_runs_in_the_order_of_its_units_but_for_the_company_of_their_keys():
    batches = former(max_cost=3)
    batches.add([queued(key=key) for key in "xyxxxyy"])
    assert [(batch.key, len(batch.units)) for batch in drain(batches)] == [("x", 3), ("y", 3), ("x", 1)]


def test_an_oversized_unit_runs_alone():
    batches = former(max_cost=10)
    batches.add([queued(cost=3, request=1), queued(cost=50, request=2), queued(cost=3, request=3)])
    assert [batch.cost for batch in drain(batches)] == [6, 50]


def test_units_of_one_request_count_as_one_request():
    batches = former(max_requests=2)
    batches.add([queued(request=name) for name in "abbccc"])
    assert [(len(batch.units), batch.requests) for batch in drain(batches)] == [(3, 2), (3, 1)]


def test_a_request_larger_than_a_batch_is_split():
    batches = former(max_cost=10)
    batches.add([queued(cost=4, request="large") for _ in range(5)])
    assert [batch.cost for batch in drain(batches)] == [8, 8, 4]


def test_cancelling_drops_every_queued_unit_of_the_request_and_says_how_many():
    batches = former()
    batches.add([queued(request=name, cost=2) for name in "abab"])
    assert batches.cancel("a") == 2
    assert batches.cancel("a") == 0
    assert (batches.queued_units, batches.queued_cost) == (2, 4)
    assert [unit.request for batch in drain(batches) for unit in batch.units] == ["b", "b"]


def test_a_request_past_its_deadline_is_dropped_whole_even_when_some_of_it_ran():
    batches = former(max_cost=2)
    batches.add([queued(cost=2, request="a", deadline=1.0) for _ in range(3)])
    assert len(batches.take(0.0, device_busy=False).units) == 1
    batches.add([queued(request="b", deadline=9.0)])
    assert batches.expire(0.999) == set()
    assert batches.expire(1.0) == {"a"}
    assert [unit.request for batch in drain(batches) for unit in batch.units] == ["b"]


def test_nothing_is_predicted_before_the_first_measurement():
    batches = former(max_run_s=0.1)
    batches.add([queued(cost=100)])
    assert batches.take(0.0, device_busy=False).predicted_s is None


def test_a_bounded_time_has_one_unit_run_alone_first_however_many_wait():
    def sizes(**limits):
        batches = former(max_cost=1000, max_wait_s=5.0, **limits)
        batches.add([queued(cost=10, request=number) for number in range(30)])
        ready, taken = batches.ready_at(0.0), []
        while (batch := batches.take(0.0, device_busy=False)) is not None:
            batches.record(batch, 0.001 * batch.cost)
            taken.append(len(batch.units))
        return ready, taken

    assert sizes(max_run_s=1.0) == (0.0, [1, 8, 21])  # what was measured shows that more fit together
    assert sizes(max_run_s=None) == (5.0, [30])


def test_no_batch_of_a_slow_model_is_large_not_even_its_first():
    batches = former(max_cost=16384, max_run_s=0.25)
    batches.add([queued(cost=400, request="large") for _ in range(40)])
    sizes = []
    while (batch := batches.take(0.0, device_busy=False)) is not None:
        sizes.append(len(batch.units))
        batches.record(batch, 0.007 * batch.cost)
    assert max(sizes) <= 3  # half of the first one's time was thought to be overhead


def test_short_runs_after_a_slow_first_one_do_not_make_a_large_batch_seem_short():
    batches = former(max_cost=16384, max_run_s=0.25)
    costs = []
    for units in ([8], [12], [400] * 40):
        batches.add([queued(cost=cost) for cost in units])
        while (batch := batches.take(0.0, device_busy=False)) is not None:
            batches.record(batch, 0.02 + 0.007 * batch.cost + (0.0 if costs else 1.0))
            costs.append(batch.cost)
    assert max(costs) <= 1200


def test_the_predicted_time_bounds_a_batch_once_it_was_measured():
    batches = former(max_cost=1000, max_run_s=0.1)
    batches.add([queued(cost=20)])
    batches.record(batches.take(0.0, device_busy=False), seconds=0.04)
    batches.add([queued(cost=10, request=number) for number in range(12)])
    taken = drain(batches)
    assert [batch.cost for batch in taken] == [80, 40]  # half of the 40 ms is thought to be overhead
    assert all(batch.predicted_s <= 0.1 + 1e-9 for batch in taken)


def test_a_unit_predicted_to_run_too_long_still_runs_alone():
    batches = former(max_cost=1000, max_run_s=0.1)
    batches.add([queued(cost=10)])
    batches.record(batches.take(0.0, device_busy=False), seconds=10.0)
    batches.add([queued(cost=10, request=1), queued(cost=40, request=2)])
    assert [len(batch.units) for batch in drain(batches)] == [1, 1]


def test_runs_that_all_cost_as_much_as_the_limit_are_still_shared():
    def seconds(batch):
        return 0.24 + 0.0001 * batch.cost

    batches = former(max_cost=16384, max_requests=64, max_run_s=0.25)
    for _ in range(3):
        batches.add([queued(cost=3)])
        batch = batches.take(0.0, device_busy=False)
        batches.record(batch, seconds(batch))
    batches.add([queued(cost=8) for _ in range(500)])
    sizes = []
    while (batch := batches.take(0.0, device_busy=False)) is not None:
        batches.record(batch, seconds(batch))
        sizes.append(len(batch.units))
    assert len(sizes) <= 10
    assert max(sizes) > 200


def test_a_batch_may_take_twice_the_time_of_its_first_unit_alone():
    batches = former(max_cost=1000, max_run_s=0.1)
    batches.add([queued(cost=10)])
    batches.record(batches.take(0.0, device_busy=False), seconds=1.0)  # 0.5 s of overhead, 0.05 s a unit of cost
    batches.add([queued(cost=10, request=number) for number in range(4)])
    assert batches.ready_at(0.0) == 0.0  # the queue holds more than a batch may
    assert [batch.cost for batch in drain(batches)] == [30, 10]


def test_cancelled_and_expired_work_leaves_no_memory_behind():
    batches = former()
    batches.add([queued(request="stays", deadline=1e9)])
    for number in range(10_000):
        batches.add([queued(request=number, key=number, deadline=1e6 + number)])
        batches.cancel(number)
    queue = batches._queue
    internals = [
        queue.lanes,
        queue._turns._begun,
        queue._turns._later,
        queue.flows,
        queue._unserved,
        batches._deadlines,
    ]
    assert sum(len(part) for part in internals) < 1_000
    assert batches.queued_units == 1


def test_forming_a_batch_touches_its_own_units_and_not_the_queue():
    class Counted(Unit):
        reads = 0

        def __getattribute__(self, name):
            if name == "cost":
                Counted.reads += 1
            return super().__getattribute__(name)

    def reads_for_one_batch(queue):
        batches = former(max_cost=10)
        batches.add([QueuedUnit(Counted(0, 1, "k", None), number, 0.0) for number in range(queue)])
        Counted.reads = 0
        batches.take(0.0, device_busy=False)
        return Counted.reads

    assert reads_for_one_batch(10_000) == reads_for_one_batch(100)


def run(batches, batch, seconds):
    batches.record(batch, seconds)
    return batch


def test_a_request_that_cannot_be_answered_in_time_is_dropped_before_it_runs():
    batches = former(max_cost=100)
    for at in range(3):
        batches.add([queued(cost=10, request=at)])
        run(batches, batches.take(0.0, device_busy=False), seconds=1.0)
    batches.add([queued(cost=10, request="late", at=0.5, deadline=1.4), queued(cost=10, request="early", deadline=1.6)])
    assert batches.expire(0.5) == {"late"}
    assert batches.take(0.5, device_busy=False).units[0].request == "early"


def test_a_prediction_drops_nothing_where_no_batch_has_run_of_late_that_could_mend_it():
    batches = former(max_cost=100)
    batches.add([queued(cost=10, request=0)])
    run(batches, batches.take(0.0, device_busy=False), seconds=30.0)  # an import, perhaps: the next one is fast
    batches.add([queued(cost=10, request=1, at=60.0, deadline=62.0)])
    assert batches.expire(60.0) == set()
    assert batches.take(60.0, device_busy=False).requests == 1


def test_company_does_not_make_a_request_late():
    batches = former(max_cost=1000)
    for cost in (10, 100) * 5:
        batches.add([queued(cost=cost)])
        run(batches, batches.take(0.0, device_busy=False), seconds=0.01 * cost)
    batches.add([queued(cost=50, request="urgent", deadline=0.7), queued(cost=60, request="bulk")])
    assert [batch.requests for batch in drain(batches)] == [1, 1]
    batches.add([queued(cost=50, request="patient", deadline=1.7), queued(cost=60, request="bulk")])
    assert [batch.requests for batch in drain(batches)] == [2]


def test_no_batch_is_filled_to_the_very_deadline_of_a_request_in_it():
    batches = measured_former()
    batches.add([queued(cost=50, request="urgent", deadline=0.105), queued(cost=40, request="bulk")])
    assert [batch.requests for batch in drain(batches)] == [1, 1]  # 0.1 s are predicted for both
    batches.add([queued(cost=50, request="patient", deadline=0.115), queued(cost=40, request="bulk")])
    assert [batch.requests for batch in drain(batches)] == [2]


def test_a_run_that_is_predicted_to_end_just_before_the_deadline_is_not_begun():
    batches = measured_former()
    batches.add([queued(cost=90, request="late", deadline=0.105), queued(cost=90, request="early", deadline=0.115)])
    assert batches.expire(0.0) == {"late"}


def test_what_a_request_has_queued_beyond_the_batch_makes_nobody_in_it_late():
    batches = former(max_cost=5)
    batches.add([queued(cost=1, request="first")])
    run(batches, batches.take(0.0, device_busy=False), seconds=0.0625)
    batches.add([queued(cost=1, request="large", key="y"), queued(cost=30, request="large", key="x")])
    batches.add([queued(cost=1, request="urgent", key="y", deadline=1.0)])
    assert batches.take(0.0, device_busy=False).requests == 2  # though both and all of the large one would take 1.03 s


def test_a_request_that_would_be_late_as_a_whole_joins_no_batch():
    batches = former(max_cost=5)
    batches.add([queued(cost=1, request="first")])
    run(batches, batches.take(0.0, device_busy=False), seconds=0.0625)
    batches.add([queued(cost=1, request="patient")])
    batches.add([queued(cost=1, request="late", deadline=1.0) for _ in range(31)])
    assert batches.take(0.0, device_busy=False).requests == 1


def measured_former():
    batches = former(max_cost=1000)
    for cost in (10, 100) * 5:
        batches.add([queued(cost=cost)])
        run(batches, batches.take(0.0, device_busy=False), seconds=0.01 + 0.001 * cost)
    return batches


def test_a_request_of_several_batches_runs_in_short_ones_while_it_would_hold_up_others():
    batches = measured_former()
    batches.add([queued(cost=10) for _ in range(120)])
    assert len(batches.take(0.0, False, most_s=0.065).units) == 5
    assert len(batches.take(0.0, False).units) > 60
    assert len(batches.take(0.0, False, most_s=0.065).units) == 5  # to its end


def test_slices_of_a_request_of_several_batches_run_in_batches_as_short_as_of_a_whole_one():
    taken = []
    for slices in (1, 6):
        batches = measured_former()
        batches.add([queued(cost=10, request="slice", slices=slices) for _ in range(20)])
        taken.append(len(batches.take(0.0, False, most_s=0.015).units))
    assert taken == [3, 2]  # 45 ms as it fits into a batch; 30 ms, as one unit takes 20 of which a half is overhead


def test_batches_of_requests_of_one_unit_are_full_whoever_waits():
    batches = measured_former()
    batches.add([queued(cost=200, request=request) for request in range(5)])
    assert batches.take(0.0, False, most_s=0.065).requests == 5


def test_a_large_request_and_a_short_one_share_no_batch_while_one_holds_up_the_other():
    batches = measured_former()
    batches.add([queued(cost=10, request="large") for _ in range(60)])
    assert batches.take(0.0, False, most_s=0.065).large
    batches.add([queued(cost=10, request="short")])
    short = batches.take(0.0, False, most_s=0.065)
    assert [unit.request for unit in short.units] == ["short"]
    assert not short.large
    batches.add([queued(cost=10, request="another")])
    together = batches.take(0.0, False)  # nobody is held up any more
    assert {unit.request for unit in together.units} == {"large", "another"}
    assert not together.large


def test_only_a_short_request_preempts():
    batches = measured_former()
    assert batches.take(0.0, False, most_s=0.065, preempting=True) is None
    batches.add([queued(cost=10, request="large") for _ in range(60)])
    assert batches.take(0.0, False, most_s=0.065, preempting=True) is None
    assert batches.take(0.0, False, most_s=0.065) is not None
    batches.add([queued(cost=10, request="short")])
    assert batches.take(0.0, False, preempting=True) is None  # none is large where no short ones come
    assert [unit.request for unit in batches.take(0.0, False, 0.065, preempting=True).units] == ["short"]


def test_a_short_request_preempts_although_a_large_one_is_next_for_its_age():
    batches = measured_former()
    batches.add([queued(cost=10, request="large") for _ in range(60)])
    now = 2 * AGE_S
    batches.add([queued(cost=10, request="short", at=now)])
    assert [unit.request for unit in batches.take(now, False, 0.065, preempting=True).units] == ["short"]
    assert {unit.request for unit in batches.take(now, False, 0.065).units} == {"large"}


def test_a_model_whose_every_run_has_a_large_overhead_is_not_run_unit_by_unit():
    batches = former(max_cost=1000)
    for cost in (10, 100) * 5:
        batches.add([queued(cost=cost)])
        run(batches, batches.take(0.0, device_busy=False), seconds=0.1 + 0.0001 * cost)
    batches.add([queued(cost=10, request="large") for _ in range(120)])
    assert len(batches.take(0.0, False, most_s=0.02).units) > 60
