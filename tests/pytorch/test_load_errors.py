"""Loads that fail, each with its class and what to do; and memory that runs out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.forward.transfers import HostCopy, Transfers
from sie_pytorch.heads.composed.encoder import TextEncoder

from sie_core.contracts import (
    Adapter,
    DeviceLost,
    InvalidInput,
    LoadContext,
    LoadFailure,
    ModelLoadError,
    OutOfDeviceMemory,
    device_errors,
)
from tests.pytorch.encoders import LOADS, ask, context, save_encoder, serve
from tests.pytorch.models import HIDDEN

Checkpoint = Callable[[str], Path]


@pytest.fixture
def folder(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), st.Dense(HIDDEN, 8))
    return tmp_path


def refused(folder: Path, failure: LoadFailure, *words: str, family: str = "pytorch") -> None:
    with pytest.raises(ModelLoadError) as failed:
        serve(folder, family)
    assert failed.value.failure == failure
    for word in words:
        assert word in str(failed.value)
    assert str(folder) not in str(failed.value), "a path leaks"


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
@pytest.mark.parametrize("module", [".", "2_Dense"])
def test_weights_in_a_pickle_alone_are_refused_unread(family: str, module: str, folder: Path) -> None:
    (folder / module / "model.safetensors").unlink()
    (folder / module / "pytorch_model.bin").write_bytes(b"would run code")
    refused(folder, "CONFIG", "pytorch_model.bin", "pickle", "save_pretrained", family=family)


def test_a_pickle_beside_safetensors_is_passed_over(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"would run code")
    assert serve(folder).facts.dims == {"dense": 8}


def test_weights_that_are_missing_are_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "CONFIG", "model.safetensors")


def test_damaged_weights_of_a_head_are_named(folder: Path) -> None:
    file = folder / "2_Dense/model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refused(folder, "CORRUPT", "2_Dense/model.safetensors")
    file.write_bytes(whole)
    save_file({"linear.weight": load_file(file)["linear.weight"]}, file)
    refused(folder, "CORRUPT", "2_Dense/model.safetensors", "linear.bias")
    file.unlink()
    refused(folder, "CORRUPT", "2_Dense/model.safetensors is missing")


def test_a_head_that_does_not_fit_the_pooling_is_refused(folder: Path) -> None:
    (folder / "1_Pooling/config.json").write_text('{"embedding_dimension": 32, "pooling_mode": ["cls", "mean"]}')
    refused(folder, "CONFIG", "32 dimensions", "64")


def test_a_tokenizer_that_is_missing_or_damaged_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    refused(folder, "CORRUPT", "tokenizer")
    (folder / "tokenizer.json").unlink()
    refused(folder, "CONFIG", "tokenizer.json is missing")


def test_an_architecture_nobody_knows_is_refused_with_both_reasons(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "unheard-of"}))
    refused(folder, "CONFIG", "config.json is not one", "sentence-transformers cannot load")


def test_a_length_without_room_for_a_token_is_refused(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="special tokens") as failed:
        serve(folder, max_sequence_length=2)
    assert failed.value.failure == "CONFIG"


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_model_without_weights_is_refused(load: Callable[[LoadContext], Adapter], folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="hf_id"):
        load(replace(context(folder), weights=None, card=None))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory"),
        RuntimeError("could not create a primitive"),
        RuntimeError("unable to mmap 400 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_every_way_to_run_out_of_memory_is_the_contract_s(error: BaseException) -> None:
    with pytest.raises(OutOfDeviceMemory), device_errors():
        raise error


@pytest.mark.parametrize("fault", [torch.OutOfMemoryError("no room"), RuntimeError("CUDA error: context is destroyed")])
@pytest.mark.parametrize("chained", [True, False])
def test_what_is_the_device_s_fault_stays_so_when_it_is_rewrapped(fault: Exception, chained: bool) -> None:
    def rewrap() -> None:
        try:
            raise fault
        except RuntimeError as error:
            if chained:
                raise ModelLoadError("CORRUPT", "The weights could not be read.") from error
            raise KeyError("layer")  # noqa: B904 - as libraries do

    expected = OutOfDeviceMemory if isinstance(fault, torch.OutOfMemoryError) else DeviceLost
    with pytest.raises(expected), device_errors():
        rewrap()


def test_a_request_s_own_words_are_no_fault_of_the_device() -> None:
    with pytest.raises(InvalidInput), device_errors():
        raise InvalidInput("`labels`: 'out of memory' is there twice")


class CodedError(RuntimeError):
    """As newer versions of PyTorch raise it."""

    error_code = 719


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegal"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("HIP error: unspecified launch failure"),
        CodedError("CUDA error: in words of another version"),
    ],
)
def test_every_way_to_lose_a_device_is_the_contract_s(error: BaseException) -> None:
    with pytest.raises(DeviceLost), device_errors():
        raise error


def test_a_lost_device_shows_where_its_results_are_waited_for() -> None:
    class Event:
        def synchronize(self) -> None:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    with pytest.raises(DeviceLost, match="device-side assert"):
        HostCopy(torch.zeros(1), Event()).wait()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: invalid configuration argument",
        "CUDA error: no kernel image is available for execution on the device",
        "misaligned address",
        "could not create a primitive descriptor for a matmul primitive",
    ],
)
def test_an_error_that_a_device_gets_over_is_not_its_loss(said: str) -> None:
    with pytest.raises(RuntimeError, match=said), device_errors():
        raise RuntimeError(said)


def test_any_other_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="shape"), device_errors():
        raise RuntimeError("shape mismatch")


def test_a_run_that_runs_out_of_memory_says_so_and_the_next_one_works(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = serve(checkpoint("bert"))
    assert isinstance(encoder, TextEncoder)
    before = ask(encoder, ["a"]).vectors
    with monkeypatch.context() as patch:
        patch.setattr(encoder._runner, "forward", lambda *_: torch.empty(1 << 60, dtype=torch.uint8))
        with pytest.raises(OutOfDeviceMemory):
            ask(encoder, ["a"])
    assert (ask(encoder, ["a"]).vectors == before).all()


def test_a_result_is_copied_to_float32_rows_of_one_array() -> None:
    rows = Transfers(torch.device("cpu")).download(torch.ones(3, 6, dtype=torch.bfloat16)[:, :4]).wait()
    assert rows.dtype == "float32"
    assert rows.flags.c_contiguous
    assert rows.shape == (3, 4)
