"""Pages of mapped weights: given back, read again where needed, and no other memory touched."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sie_pytorch.forward import UNMAPPED, MappedFiles
from sie_pytorch.forward.checkpoint.mapping import outside_heap

SIZE = 1 << 20
"""Numbers of a weight: 4 MB in float32."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where files are mapped")


@pytest.fixture
def mapped(tmp_path: Path) -> Callable[[], torch.Tensor]:
    """Read a weight from a folder with one file, as a view of it."""
    save_file({"before": torch.zeros(3), "weight": torch.arange(SIZE).float()}, tmp_path / "model.safetensors")

    def read() -> torch.Tensor:
        with safe_open(tmp_path / "model.safetensors", framework="pt") as tensors:
            return tensors.get_slice("weight")[...]

    return read


def resident(weight: torch.Tensor) -> int:
    """Count the bytes of the mapping around `weight` that are this process's now."""
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", block)
        if bounds and int(bounds[1], 16) <= weight.data_ptr() < int(bounds[2], 16):
            return 1024 * int(re.search(r"Rss:\s+(\d+)", block)[1])
    raise LookupError("the weight lies nowhere")


def test_released_pages_go_back_and_are_read_again(mapped: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    weight = mapped()
    total = weight.double().sum()
    assert resident(weight) >= weight.nbytes
    MappedFiles.of(tmp_path, [weight]).release([weight])
    assert resident(weight) < 100_000
    assert weight.double().sum() == total


def test_memory_that_is_no_view_of_the_files_is_never_touched(
    mapped: Callable[[], torch.Tensor], tmp_path: Path
) -> None:
    weight = mapped()
    copies = [weight.clone(), weight.bfloat16(), outside_heap((SIZE,), torch.float32).copy_(weight)]
    sums = [copy.double().sum() for copy in copies]
    MappedFiles.of(tmp_path, [weight]).release(copies)
    assert [copy.double().sum() for copy in copies] == sums


def test_files_of_other_folders_are_not_released(mapped: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    weight = mapped()
    weight.sum()
    (tmp_path / "other").mkdir()
    for files in (MappedFiles.of(tmp_path / "other", [weight]), UNMAPPED):
        files.release([weight])
        assert files.places == ()
    assert resident(weight) >= weight.nbytes


def mappings(file: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(file))


def test_a_mapping_stays_while_its_addresses_are_known(mapped: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    weight, file = mapped(), tmp_path / "model.safetensors"
    assert MappedFiles.of(tmp_path, [torch.zeros(3)]).places == ()
    files = MappedFiles.of(tmp_path, [weight])
    assert len(files.places) == len(files.held) == mappings(file) == 1
    del weight
    assert mappings(file) == 1
    del files
    assert mappings(file) == 0


def test_memory_outside_the_heap_is_zero_and_goes_with_its_tensor() -> None:
    memory = outside_heap((3, 5), torch.bfloat16)
    assert memory.shape == (3, 5)
    assert memory.dtype is torch.bfloat16
    assert not memory.any()
    assert outside_heap((0, 5), torch.float32).shape == (0, 5)
    (large, other) = (outside_heap((SIZE,), torch.float32).fill_(1.0) for _ in range(2))
    place = large.data_ptr()
    del large
    assert not any(int(line.split("-")[0], 16) == place for line in Path("/proc/self/maps").read_text().splitlines())
    assert other.sum() == SIZE


def test_memory_that_the_system_has_not_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot be mapped"):
        outside_heap((1 << 47,), torch.float32)
