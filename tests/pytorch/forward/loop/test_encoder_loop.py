"""The encoder loop computes what transformers computes, for every architecture of its table, and refuses the others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.forward.layout import PackedLayout
from sie_pytorch.forward.loop.linear import row_count
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import preempted_by
from tests.pytorch.forward.support import (
    SHORT,
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    reference_model,
)
from tests.pytorch.forward.test_new_architecture import reference
from tests.pytorch.models import ARCHITECTURES, LAYERS_OF, described, write_checkpoint, write_new

NAMES = described(RUNNERS[0].features)


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]) -> tuple[str, BuiltRunner, torch.Tensor]:
    """Give an architecture, its loop, and transformers' states for its batch."""
    name = request.param
    runner = build(checkpoint(name), RUNNERS)
    return name, runner, padded_states(reference_model(name, checkpoint(name)), batch_for(name))


def error(case: tuple[str, BuiltRunner, torch.Tensor], **changes: Any) -> float:
    name, runner, expected = case
    return deviation(forward(runner, replace(batch_for(name), **changes)), expected)


def test_its_states_equal_the_padded_model(case: tuple) -> None:
    assert case[1].info.name == "encoder-loop", case[1].info.reason
    assert error(case) <= TOLERANCE


def test_a_row_of_a_batch_equals_the_same_text_alone(case: tuple) -> None:
    name, runner, _ = case
    batch = batch_for(name)
    alone = torch.cat([forward(runner, batch.one(place)) for place in batch.places])
    assert deviation(alone, forward(runner, batch)) <= TOLERANCE


def test_a_batch_that_is_preempted_between_layers_gets_the_same_numbers(case: tuple) -> None:
    name, runner, _ = case
    batch, meanwhile = batch_for(name), packed_batch((7, 2))
    expected, short = forward(runner, batch), forward(runner, meanwhile)
    nested: list[torch.Tensor] = []

    def run_another() -> None:
        with preempted_by(None):
            nested.append(forward(runner, meanwhile))

    with preempted_by(run_another):
        assert torch.equal(forward(runner, batch), expected)
    assert nested
    assert all(torch.equal(each, short) for each in nested)


def test_a_flipped_causal_flag_is_seen(case: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PackedLayout.attend

    def flipped(self: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
        return right(self, *states, **{**facts, "causal": not facts["causal"]})

    monkeypatch.setattr(PackedLayout, "attend", flipped)
    assert error(case) > TOLERANCE


def test_a_window_is_seen(case: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PackedLayout.attend

    def windowed(self: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
        return right(self, *states, **{**facts, "window": max(run.length for run in self.runs) - 1})

    monkeypatch.setattr(PackedLayout, "attend", windowed)
    assert error(case) > TOLERANCE


def test_the_whole_batch_as_one_segment_is_seen(case: tuple) -> None:
    batch = batch_for(case[0])
    assert error(case, cu_seqlens=batch.cu_seqlens[[0, -1]]) > TOLERANCE


@pytest.mark.parametrize("off", [-1, 1])
def test_positions_off_by_one_are_seen(case: tuple, off: int) -> None:
    name, runner, _ = case
    if not ARCHITECTURES[name].learned_positions:
        # rotary positions are relative: a shift of all changes nothing, a stretch does
        positions = batch_for(name).positions
        assert error(case, positions=positions + 1 + off) <= TOLERANCE
        rotates = LAYERS_OF[ARCHITECTURES[name].config().model_type].rotary is not None
        assert (error(case, positions=positions * 2) > TOLERANCE) == rotates  # T5 knows places within texts alone
        return
    table = runner._runner._entry.embeddings.position_embeddings
    hook = table.register_forward_pre_hook(lambda _, arguments: ((arguments[0] + off).clamp(min=0),))
    try:
        assert error(case) > TOLERANCE
    finally:
        hook.remove()


def test_gte_equals_its_description(tmp_path: Path) -> None:
    runner = build(write_new(tmp_path), RUNNERS)
    assert runner.info.name == "encoder-loop", runner.info.reason
    batch = packed_batch(SHORT, types=2)
    assert deviation(forward(runner, batch), reference(tmp_path, batch)) <= TOLERANCE


def test_the_packed_runner_serves_what_the_table_lacks(checkpoint: Callable[[str], Path]) -> None:
    assert ARCHITECTURES["albert"].config().model_type not in LAYERS_OF
    assert build(checkpoint("albert"), RUNNERS).info.name == "packed"


def test_a_model_that_is_not_what_its_row_says_is_served_by_another(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_checkpoint("bert", tmp_path)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "gelu_fast"'))
    runner = build(folder, RUNNERS)
    assert runner.info.name == "packed"
    assert "'gelu_fast' is none of gelu" in runner.info.reason


def test_few_numbers_of_rows_serve_every_batch_with_little_waste() -> None:
    totals = range(1, 16_385)
    rows = [row_count(total) for total in totals]
    assert all(total <= count <= max(total + 7, total * 9 / 8) for total, count in zip(totals, rows, strict=True))
    assert len(set(rows)) <= 72
