"""Copies to and from a device; what is particular to a GPU is tested in `tests/gpu`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.forward.transfers import (
    LEAST_BYTES,
    MOST_BYTES,
    SLOTS,
    CudaQueue,
    LateCopies,
    Pinned,
    PinnedBuffers,
    Transfers,
    room_for,
)
from sie_pytorch.heads.composed.model import PackedModel

from sie_core.contracts import Item, Task
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import save_encoder, serve
from tests.pytorch.models import HIDDEN

DEVICE = torch.device("cpu")
CPU = Transfers(DEVICE)


class Mark:
    """An event of a device that reaches it when it is waited for, or when the test says so."""

    def __init__(self) -> None:
        self.reached, self.waits, self.stream = True, 0, ""

    def record(self, stream: str) -> None:
        self.reached, self.stream = False, stream

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reached, self.waits = True, self.waits + 1


class Recorder:
    """A `Queue` that notes what it is asked for, in order."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.marks: list[Mark] = []
        self.order: list[str] = []

    def pinned(self, size: int) -> torch.Tensor:
        self.made.append(size)
        return torch.empty(size, dtype=torch.uint8)

    def marker(self) -> Mark:
        self.marks.append(Mark())
        return self.marks[-1]

    def stream(self) -> str:
        return "first"

    @contextmanager
    def aside(self, after: Mark) -> Iterator[str]:
        assert after.stream == "first", "the second stream would not wait for the first"
        self.order.append("aside")
        yield "second"


@pytest.fixture
def queue() -> Recorder:
    return Recorder()


def test_several_arrays_of_any_kind_travel_as_one_and_arrive_apart(queue: Recorder) -> None:
    arrays = [
        np.arange(5),
        np.arange(3, dtype=np.int32),
        np.array([True, False, True]),
        np.empty(0, np.int32),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::2],
        np.arange(700),
    ]
    for transfers in (CPU, Transfers(DEVICE, queue), Transfers(torch.device("meta"))):
        arrived = transfers.upload(arrays)
        assert [tuple(there.shape) for there in arrived] == [array.shape for array in arrays]
        if transfers.device is DEVICE:
            assert len({each.untyped_storage().data_ptr() for each in arrived}) == 1
            for array, there in zip(arrays, arrived, strict=True):
                assert torch.equal(there, torch.from_numpy(array))
    assert len(queue.marks) == 1


def test_what_arrived_no_longer_depends_on_what_was_sent() -> None:
    array = np.arange(4, dtype=np.int32)
    (there,) = CPU.upload([array])
    array[:] = 9
    assert there.dtype == torch.int32
    assert there.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("emulated", [False, True])
def test_a_result_comes_back_as_float32_rows(emulated: bool, queue: Recorder) -> None:
    states = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    rows = Transfers(DEVICE, queue if emulated else None).download(states[:, :2]).wait()
    assert rows.tolist() == [[0.0, 1.0], [3.0, 4.0]]
    assert rows.dtype == np.float32
    assert [mark.waits for mark in queue.marks] == ([0, 1] if emulated else [])


def test_a_pinned_buffer_is_filled_again_only_after_the_copy_from_it(queue: Recorder) -> None:
    transfers = Transfers(DEVICE, queue)
    sent = [transfers.upload([np.full(3, number)]) for number in range(SLOTS)]
    assert [mark.waits for mark in queue.marks] == [0] * SLOTS
    assert {mark.stream for mark in queue.marks} == {"first"}
    queue.marks[1].reached = True
    sent += [transfers.upload([np.full(3, 100 + number)]) for number in range(3)]
    assert [mark.waits for mark in queue.marks] == [1, 0, 1, *[0] * (SLOTS - 3)]
    assert [each[0].tolist()[0] for each in sent] == [*range(SLOTS), 100, 101, 102]


def test_a_buffer_whose_copy_is_done_is_used_again_before_another_is_made(queue: Recorder) -> None:
    transfers = Transfers(DEVICE, queue)
    for _ in range(5):
        transfers.upload([np.arange(3)])
        queue.marks[0].reached = True
    assert queue.made == [LEAST_BYTES]


def test_buffers_grow_and_a_large_copy_has_one_of_its_own(queue: Recorder) -> None:
    buffers = PinnedBuffers(queue)
    small = buffers.take(9)
    buffers.give_back(small)
    larger = buffers.take(LEAST_BYTES + 1)
    assert (len(small.buffer), len(larger.buffer)) == (LEAST_BYTES, 2 * LEAST_BYTES)
    buffers.give_back(larger)
    huge = buffers.take(MOST_BYTES + 1)
    buffers.give_back(huge)
    assert [len(each.buffer) for each in buffers._free] == [2 * LEAST_BYTES]


def test_a_buffer_that_results_arrived_in_is_used_again_once_nobody_holds_them(queue: Recorder) -> None:
    transfers = Transfers(DEVICE, queue)
    first = transfers.download_all([torch.full((3,), 1), torch.full((2, 2), 2.0)])
    second = transfers.download_all([torch.full((3,), 3)])
    assert len({copy.done for copy in first.copies}) == 1
    assert len({copy.done for copy in (*first.copies, *second.copies)}) == 2
    kept = first.wait()
    one = first.copies[1]
    del first
    assert len(queue.made) == 2
    third = transfers.download_all([torch.full((3,), 4)])
    assert len(queue.made) == 3, "a result that is still held would be overwritten"
    del one
    gc.collect()
    fourth = transfers.download_all([torch.full((3,), 5), torch.full((2, 2), 6.0)])
    assert len(queue.made) == 3
    assert [each.tolist() for each in kept] == [[1, 1, 1], [[2.0, 2.0], [2.0, 2.0]]]
    assert [each.wait()[0].tolist() for each in (second, third, fourth)] == [[3] * 3, [4] * 3, [5] * 3]


def test_a_batch_that_nobody_waited_for_leaves_a_buffer_that_is_waited_for_before_it_is_used(queue: Recorder) -> None:
    buffers = PinnedBuffers(queue, slots=1)
    transfers = Transfers(DEVICE, queue)
    transfers._back = buffers
    transfers.download(torch.ones(3))
    landed = next(mark for mark in queue.marks if mark.stream == "second")
    assert not landed.reached
    transfers.download(torch.ones(3))
    assert landed.waits == 1


def test_results_of_unknown_size_are_computed_by_whoever_waits_for_them(queue: Recorder) -> None:
    weights = torch.tensor([0.0, 2.0, 0.0, 3.0])
    asked: list[str] = []

    def find() -> list[torch.Tensor]:
        asked.append("found")
        assert queue.order, "it would run in the stream of the next batch"
        return [weights.nonzero()[:, 0], weights[weights > 0]]

    late = Transfers(DEVICE, queue).download_late(find)
    assert isinstance(late, LateCopies)
    assert not asked
    late.land()
    assert [each.tolist() for each in late.wait()] == [[1, 3], [2.0, 3.0]]
    assert asked == ["found"]
    queue.order.append("plain")
    assert [each.tolist() for each in CPU.download_late(find).wait()] == [[1, 3], [2.0, 3.0]]


def test_staged_arrays_travel_in_one_copy_and_those_beyond_its_room_by_themselves(queue: Recorder) -> None:
    transfers = Transfers(DEVICE, queue)
    arrays = [np.arange(5), np.arange(9, dtype=np.int32)]
    staged = transfers.stage(room_for(arrays))
    there = [*staged.add(arrays[:1]), *staged.add(arrays[1:])]
    (beyond,) = staged.add([np.arange(1000)])
    assert [mark.stream for mark in queue.marks] == ["", "first"], "the staged ones have left, or the other one has not"
    staged.send()
    assert [mark.stream for mark in queue.marks] == ["first", "first"]
    assert [each.tolist() for each in there] == [array.tolist() for array in arrays]
    assert beyond.tolist() == list(range(1000))


def test_a_batch_goes_to_the_device_in_one_copy_and_its_vectors_come_back_in_one(
    checkpoint: Any, tmp_path: Path, queue: Recorder
) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    encoder = serve(tmp_path)
    assert isinstance(encoder, PackedModel)
    units = list(encoder.prepare([Item(text=text) for text in make_texts(5, 20, seed=3)], Task("encode", ("dense",))))
    expected = encoder.finish(units, encoder.run(units))
    encoder._transfers = Transfers(DEVICE, queue)
    raw = encoder.run(units)
    assert [mark.stream for mark in queue.marks] == ["first", "first", "second"], "one sent, one awaited, one received"
    assert encoder.await_device(units, raw)
    for ours, theirs in zip(encoder.finish(units, raw), expected, strict=True):
        assert np.array_equal(ours.dense, theirs.dense)


@pytest.mark.parametrize("given", [None, "copies", "splade", "all"])
def test_only_the_trial_keeps_buffers_of_results_and_stages_a_batch(
    given: str | None, monkeypatch: pytest.MonkeyPatch, queue: Recorder
) -> None:
    if given is not None:
        monkeypatch.setenv("SIE_CUDA_TRIAL", given)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    tries = Transfers(torch.device("cuda"))
    assert isinstance(tries._queue, CudaQueue)
    assert tries._back is not None
    tries._back.give_back(Pinned(torch.empty(9, dtype=torch.uint8), Mark()))
    assert len(tries._back._free) == (given in ("copies", "all"))
    assert tries._at_once == (given not in ("copies", "all"))
