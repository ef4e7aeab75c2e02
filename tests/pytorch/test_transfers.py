"""Copies to and from a device; what is particular to a GPU is tested in `tests/gpu`."""

import numpy as np
import torch
from sie_pytorch.forward.transfers import Transfers

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
