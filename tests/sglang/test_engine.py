"""The life of the engine's process: faults in its answers, its start and its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
from sie_sglang.adapter import SglangEncoder
from sie_sglang.engine import child
from sie_sglang.loading import load

from sie_core.contracts import FamilyUnfitError, InferenceError, ModelLoadError, OutOfDeviceMemory
from tests.pytorch.encoders import MODEL, ask, context

BOUND_S = 60.0
TEXTS = ["one", "two and three"]


@pytest.fixture
def folder(embedders: Path, engine_python: Path) -> Path:
    """Another model than that of `served_once`, whose processes run beside."""
    return embedders / "test" / "qwen3"


def engines(folder: Path) -> list[psutil.Process]:
    """The processes of engines that serve a folder, their guards included."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ("fail", "QUEUE_UNAVAILABLE"),
        ("cut", "QUEUE_UNAVAILABLE"),
        ("short", "QUEUE_UNAVAILABLE"),
        ("narrow", "QUEUE_UNAVAILABLE"),
    ],
)
def test_a_wrong_answer_is_a_retryable_error(
    served_once: SglangEncoder, orders_once: Path, order: str, code: str
) -> None:
    right = ask(served_once, TEXTS).vectors
    (orders_once / order).touch()
    with pytest.raises(InferenceError) as failed:
        ask(served_once, TEXTS)
    assert (failed.value.code, failed.value.spec.retryable) == (code, True)
    assert not (orders_once / order).exists(), "the fault was made"
    np.testing.assert_array_equal(ask(served_once, TEXTS).vectors, right)


def test_a_reordered_answer_is_put_in_order(served_once: SglangEncoder, orders_once: Path) -> None:
    right = ask(served_once, TEXTS).vectors
    (orders_once / "reorder").touch()
    np.testing.assert_array_equal(ask(served_once, TEXTS).vectors, right)


def test_lack_of_memory_is_the_contracts_own_error(served_once: SglangEncoder, orders_once: Path) -> None:
    (orders_once / "memory").touch()
    with pytest.raises(OutOfDeviceMemory):
        ask(served_once, TEXTS)


@pytest.mark.parametrize(
    ("order", "failure", "says"),
    [
        ("start-fail", "UNKNOWN", "RuntimeError: this engine was told to fail"),
        ("start-never", "TIMEOUT", "did not answer in 3 s"),
    ],
)
def test_a_start_that_fails_is_a_typed_load_error(
    folder: Path, orders: Path, monkeypatch: pytest.MonkeyPatch, order: str, failure: str, says: str
) -> None:
    monkeypatch.setenv("SIE_SGLANG_START_TIMEOUT_S", "3" if order == "start-never" else "60")
    (orders / order).touch()
    with pytest.raises(ModelLoadError, match=says) as failed:
        load(context(folder))
    assert failed.value.failure == failure
    assert not engines(folder)


def test_a_start_that_takes_long_is_told_with_the_last_line_of_the_engines_log(
    folder: Path, orders: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "TOLD_EVERY_S", 0.0)
    (orders / "start-slow").touch()
    with caplog.at_level("INFO", logger=child.__name__):
        load(context(folder)).unload()
    told = [record.getMessage() for record in caplog.records if record.name == child.__name__]
    assert f"the engine of {MODEL} is starting: this engine takes a second" in told


def test_a_start_without_room_is_the_contracts_own_error(folder: Path, orders: Path) -> None:
    (orders / "start-memory").touch()
    with pytest.raises(OutOfDeviceMemory):
        load(context(folder))


def test_without_an_environment_it_hands_the_model_on(embedders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIE_SGLANG_PYTHON", raising=False)
    with pytest.raises(FamilyUnfitError, match=r"SIE_SGLANG_PYTHON is not set\. Make one with"):
        load(context(embedders / "test" / "qwen2"))


@pytest.mark.parametrize(
    ("script", "says"),
    [("exit 1", "has no sglang"), ("echo 0.4.9", r"has sglang 0\.4\.9; .* is served"), (None, "does not run")],
)
def test_a_wrong_environment_is_named_with_the_remedy(
    embedders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    monkeypatch.setenv("SIE_SGLANG_PYTHON", str(python))
    with pytest.raises(ModelLoadError, match=says) as failed:
        load(context(embedders / "test" / "qwen2"))
    assert failed.value.failure == "DEPENDENCY"
    assert "pip install --pre 'sglang==0.5.23'" in str(failed.value)
