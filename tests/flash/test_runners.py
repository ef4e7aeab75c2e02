"""The runner over variable-length attention, with the kernels' documented contract in the place of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_flash.layout import VarlenLayout
from sie_pytorch.forward import INTERFACE

from sie_core.contracts import RunnerSpec
from tests.pytorch.forward.support import (
    PACKED,
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.models import ARCHITECTURES

PLAIN = RunnerSpec("plain", INTERFACE, "tests.flash.plain:PlainRunner", priority=30)
NAMES = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]


@pytest.mark.parametrize("name", NAMES)
def test_states_equal_the_padded_model(name: str, checkpoint: Callable[[str], Path], padded: Callable) -> None:
    runner = build(checkpoint(name), [PLAIN, *PACKED])
    assert runner.info.name == "plain", runner.info.reason
    assert deviation(forward(runner, batch_for(name)), padded(name, "eager")) <= TOLERANCE


@pytest.mark.parametrize("name", ["bert", "modernbert", "jina-v3", "qwen3", "embeddinggemma"])
def test_tokens_that_nothing_attends_to_change_nothing_but_themselves(
    name: str, checkpoint: Callable[[str], Path]
) -> None:
    runner, batch = build(checkpoint(name), [PLAIN, *PACKED], expands_queries=True), with_expansion(batch_for(name))
    assert runner.info.name == "plain", runner.info.reason
    expected = padded_states(reference_model(name, checkpoint(name), "sdpa"), batch)
    assert deviation(forward(runner, batch), expected) <= TOLERANCE
    assert deviation(forward(runner, replace(batch, key_lengths=None)), expected) > 10 * TOLERANCE


@pytest.mark.parametrize("name", [name for name in NAMES if ARCHITECTURES[name].window])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_seen(
    name: str, off: int, checkpoint: Callable, padded: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = build(checkpoint(name), [PLAIN])
    right = VarlenLayout.attend

    def wrong(layout: VarlenLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
        return right(layout, *states, **{**facts, "window": facts["window"] and facts["window"] + off})

    monkeypatch.setattr(VarlenLayout, "attend", wrong)
    assert deviation(forward(runner, batch_for(name)), padded(name, "eager")) > TOLERANCE


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_sequences_that_see_each_other_are_seen(name: str, checkpoint: Callable, padded: Callable) -> None:
    batch = batch_for(name)
    states = forward(build(checkpoint(name), [PLAIN]), replace(batch, cu_seqlens=batch.cu_seqlens[[0, -1]]))
    assert deviation(states, padded(name, "eager")) > TOLERANCE


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gemma2", "takes softcap"), ("mpnet", "does not let its attention be exchanged"), ("t5", "no position_ids")],
)
def test_what_packing_does_not_serve_is_left_to_the_padded_runner(
    name: str, reason: str, checkpoint: Callable[[str], Path]
) -> None:
    info = build(checkpoint(name), [PLAIN, *PACKED]).info
    assert info.name == "padded"
    assert info.reason.startswith("not plain: ")
    assert reason in info.reason.split("; ")[0]
