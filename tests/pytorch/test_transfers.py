"""Copies to and from a device; what is particular to a GPU is tested in `tests/gpu`."""

import numpy as np
import torch
from sie_pytorch.forward.transfers import LEAST_BYTES, MOST_BYTES, SLOTS, PinnedRing, Transfers

CPU = Transfers(torch.device("cpu"))


def test_several_arrays_travel_as_one_and_arrive_apart() -> None:
    arrays = [np.arange(size) for size in (5, 1, 700)]
    arrived = CPU.upload(arrays)
    assert len({each.untyped_storage().data_ptr() for each in arrived}) == 1
    for array, there in zip(arrays, arrived, strict=True):
        assert there.dtype == torch.int64
        assert np.array_equal(there.numpy(), array)


def test_what_arrived_no_longer_depends_on_what_was_sent() -> None:
    array = np.arange(4, dtype=np.int32)
    (there,) = CPU.upload([array])
    array[:] = 9
    assert there.dtype == torch.int32
    assert there.tolist() == [0, 1, 2, 3]


def test_a_result_comes_back_as_float32_rows() -> None:
    states = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    rows = CPU.download(states[:, :2]).wait()
    assert rows.tolist() == [[0.0, 1.0], [3.0, 4.0]]
    assert rows.dtype == np.float32


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


def stream_of(device: torch.device) -> str:
    return f"copies to {device}"


def test_a_pinned_buffer_is_filled_again_only_after_the_copy_from_it() -> None:
    marks: list[Mark] = []
    ring = PinnedRing(
        lambda size: torch.empty(size, dtype=torch.uint8), lambda: marks.append(Mark()) or marks[-1], stream_of
    )
    sent = [ring.send([np.full(3, number)], torch.device("cpu")) for number in range(SLOTS)]
    assert [mark.waits for mark in marks] == [0] * SLOTS
    assert {mark.stream for mark in marks} == {"copies to cpu"}
    marks[1].reached = True
    sent += [ring.send([np.full(3, 100 + number)], torch.device("cpu")) for number in range(3)]
    assert [mark.waits for mark in marks[:4]] == [1, 0, 1, 0]
    assert [each[0].item() for each in sent] == [*range(SLOTS), 100, 101, 102]


def test_a_ring_sends_every_dtype_and_shape_and_grows() -> None:
    made: list[int] = []

    def pinned(size: int) -> torch.Tensor:
        made.append(size)
        return torch.empty(size, dtype=torch.uint8)

    ring = PinnedRing(pinned, Mark, stream_of)
    pictures = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert torch.equal(ring.send([pictures, pictures], CPU.device), torch.from_numpy(np.concatenate([pictures] * 2)))
    flags = np.array([True, False, True])
    assert torch.equal(ring.send([flags], CPU.device), torch.from_numpy(flags))
    assert ring.send([np.empty(0, np.int32)], CPU.device).shape == (0,)
    for _ in range(2 * SLOTS):
        more = np.arange(LEAST_BYTES // 4, dtype=np.int64)
        assert torch.equal(ring.send([more], CPU.device), torch.from_numpy(more))
    assert made.count(4 * LEAST_BYTES) == SLOTS
    large = np.arange(MOST_BYTES, dtype=np.int64)
    assert torch.equal(ring.send([large], CPU.device), torch.from_numpy(large))
    assert max(len(each) for each in ring._buffers if each is not None) <= 2 * MOST_BYTES
