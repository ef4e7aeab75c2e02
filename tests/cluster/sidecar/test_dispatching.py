"""What the adapter process is sent: one that runs alone shares it with no other, and waits for loads without them."""

from __future__ import annotations

from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.adapter.dispatching import Dispatch
from sie_cluster.sidecar.held import MOST_SHARED, Slice

from tests.cluster.sidecar.slices import slice_of


def test_others_go_before_a_slice_that_runs_alone_while_loads_are_waited_for() -> None:
    """It may wait for minutes, and they would with it."""
    sent: list[Slice] = []
    dispatch = Dispatch(ClusterSettings(), sent.append)
    loading, alone, others = slice_of(1), slice_of(2, alone=True), [slice_of(number, b"o") for number in (3, 4)]
    dispatch.take(loading)
    dispatch.waits_for_load(loading, waits=True)
    dispatch.take(alone)
    for each in others:
        dispatch.take(each)
    assert sent == [loading, *others]
    for each in others:
        dispatch.ended(each)
    assert alone not in sent
    dispatch.waits_for_load(loading, waits=False)
    late = slice_of(5)
    dispatch.take(late)
    dispatch.ended(loading)
    assert sent == [loading, *others, alone]
    dispatch.ended(alone)
    assert sent[-1] is late


def test_a_slice_that_runs_alone_is_not_passed_by_for_ever() -> None:
    sent: list[Slice] = []
    dispatch = Dispatch(ClusterSettings(), sent.append)
    first, alone = slice_of(1), slice_of(2, alone=True)
    dispatch.take(first)
    dispatch.take(alone)
    later = [slice_of(number) for number in range(3, 6)]
    for each in later:
        dispatch.take(each)
    assert sent == [first]
    dispatch.ended(first)
    assert sent == [first, alone]
    dispatch.ended(alone)
    assert sent == [first, alone, *later]


def test_a_key_of_which_the_adapter_process_has_nothing_waits_for_no_backlog_of_others() -> None:
    """Its fair queue decides between them, and has to know of both for that."""
    sent: list[Slice] = []
    dispatch = Dispatch(ClusterSettings(), sent.append)
    flood = [slice_of(number, b"a") for number in range(40)]
    dispatch.take(flood[0])
    dispatch.queued(1, 9.0)  # it has all that it may have
    for each in flood[1:]:
        dispatch.take(each)
    assert sent == flood[:1]
    others = [slice_of(number, b"b") for number in range(40, 42)]
    for each in others:
        dispatch.take(each)
    assert sent == [flood[0], others[0]]
    dispatch.ended(others[0])
    assert sent == [flood[0], *others]
    dispatch.ended(others[1])
    assert sent == [flood[0], *others]
    alone, behind = slice_of(42, b"d", alone=True), slice_of(43, b"c")
    dispatch.take(alone)
    dispatch.take(behind)
    assert sent == [flood[0], *others]


def test_slices_that_are_delivered_again_while_they_wait_here_need_not_run_alone() -> None:
    """Nothing of them was at work, so none of them can have ended a process."""
    sent: list[Slice] = []
    dispatch = Dispatch(ClusterSettings(), sent.append)
    dispatch.take(first := slice_of(1))
    dispatch.queued(1, 9.0)
    waiting = [slice_of(number) for number in (2, 3)]
    for each in waiting:
        dispatch.take(each)
        each.delivery = slice_of(0, attempt=MOST_SHARED + 1).delivery
    dispatch.queued(1, 0.0)
    assert sent == [first, *waiting]
    dispatch.take(later := slice_of(4))
    assert sent[-1] is later


def test_what_another_worker_gave_back_shares_the_adapter_process_and_what_comes_a_third_time_does_not() -> None:
    """Else each of the slices that a worker gives back as it drains would wait for an adapter process without work."""
    sent: list[Slice] = []
    dispatch = Dispatch(ClusterSettings(), sent.append)
    given_back = [slice_of(number, attempt=2) for number in range(48)]
    for each in given_back:
        dispatch.take(each)
    assert sent == given_back
    dispatch.take(slice_of(48, attempt=MOST_SHARED + 1))
    assert sent == given_back
