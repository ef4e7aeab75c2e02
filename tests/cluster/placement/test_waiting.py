"""Which keys' work waits longer than a load takes. Time is the test's own."""

from __future__ import annotations

from sie_cluster.fleet.placement.waiting import Behind, Seen


def looks(behind: Behind, start: int, seconds: int, **seen: int) -> list[bool]:
    told = []
    for now in range(start, start + seconds):
        behind.look(float(now), {"key": Seen(**{"passed_s": 1.0, "load_s": 4.0, "pullers": 1, **seen})})  # type: ignore[arg-type]
        told.append("key" in behind.keys)
    return told


def test_a_key_is_behind_once_its_work_has_waited_longer_than_a_load_takes_for_as_long() -> None:
    assert looks(Behind(), 0, 6, waiting=50, delivered=10) == [False] * 4 + [True] * 2
    assert looks(Behind(), 0, 6, waiting=30, delivered=10) == [False] * 6
    assert looks(Behind(), 0, 6, waiting=3, delivered=0) == [False] * 4 + [True] * 2


def test_it_stays_so_until_the_work_waits_half_as_long() -> None:
    behind = Behind()
    assert looks(behind, 0, 5, waiting=50, delivered=10)[-1]
    assert all(looks(behind, 5, 5, waiting=25, delivered=10))
    assert not any(looks(behind, 10, 1, waiting=19, delivered=10))


def test_a_backlog_that_falls_needs_no_further_copy_and_one_that_falls_slowly_does() -> None:
    def told(a_second: int) -> bool:
        behind = Behind()
        for now in range(10):
            behind.look(float(now), {"key": Seen(200 - a_second * now, 20, 1.0, 4.0, 1)})
        return "key" in behind.keys

    assert not told(15)
    assert told(1)


def test_another_puller_is_given_time_before_a_third_is_asked_for() -> None:
    behind = Behind()
    assert looks(behind, 0, 5, waiting=100, delivered=10)[-1]
    assert looks(behind, 5, 5, waiting=100, delivered=10, pullers=2) == [False] * 5
    assert looks(behind, 10, 1, waiting=100, delivered=10, pullers=2) == [True]
    behind.look(20.0, {})
    assert behind.keys == ()


def test_a_key_of_which_nothing_is_known_stays_what_it_was() -> None:
    behind = Behind()
    behind.look(0.0, {"key": None})
    assert looks(behind, 0, 5, waiting=50, delivered=10)[-1]
    behind.look(6.0, {"key": None})
    assert behind.keys == ("key",)


def test_the_pace_of_long_batches_is_taken_over_the_time_between_their_deliveries() -> None:
    few, many = Behind(), Behind()
    for now in (0.0, 10.0, 20.0):
        few.look(now, {"key": Seen(5, 48, 10.0, 4.0, 1)})
        many.look(now, {"key": Seen(500, 48, 10.0, 4.0, 1)})
        for pause in (2.0, 4.0, 6.0, 8.0):
            few.look(now + pause, {"key": None})
            many.look(now + pause, {"key": None})
    assert (few.keys, many.keys) == ((), ("key",))
