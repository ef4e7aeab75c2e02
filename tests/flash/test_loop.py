"""The loop over variable-length attention, with the kernels' documented contract in the place of a kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import transformers as tf
from sie_flash.folding import _moved
from sie_flash.layout import VarlenLayout
from sie_flash.plugin import VARLEN_LOOP
from sie_flash.products import FusedLinear
from sie_pytorch.forward import INTERFACE, BuiltRunner, RunnerUnfitError
from sie_pytorch.forward.packed import PackedRunner

from sie_core.contracts import RunnerSpec, preempted_by
from tests.flash.plain import PlainLoop, PlainRunner
from tests.pytorch.forward.support import (
    LOOPED,
    PACKED,
    SHORT,
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    load_of,
    packed_batch,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.forward.test_low_rank import factors_for, merged
from tests.pytorch.forward.test_new_architecture import reference
from tests.pytorch.models import ARCHITECTURES, described, write_checkpoint, write_new

LOOP = RunnerSpec("plain-loop", INTERFACE, "tests.flash.plain:PlainLoop", features=LOOPED, priority=40)
NAMES = described(VARLEN_LOOP.features)

Checkpoint = Callable[[str], Path]
Case = tuple[str, BuiltRunner, torch.Tensor]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Case:
    """Give an architecture, its loop, and transformers' states for its batch."""
    name = request.param
    runner = build(checkpoint(name), [LOOP, *PACKED], expands_queries=True)
    return name, runner, padded_states(reference_model(name, checkpoint(name)), batch_for(name))


def error(case: Case, **changes: Any) -> float:
    name, runner, expected = case
    return deviation(forward(runner, replace(batch_for(name), **changes)), expected)


def test_its_states_equal_the_padded_model(case: Case) -> None:
    assert case[1].info.name == "plain-loop", case[1].info.reason
    assert error(case) <= TOLERANCE


def test_a_pass_changes_nothing_that_the_next_one_reads(case: Case) -> None:
    name, runner, _ = case
    assert torch.equal(forward(runner, batch_for(name)), forward(runner, batch_for(name)))


def test_tokens_that_nothing_attends_to_change_nothing_but_themselves(case: Case, checkpoint: Checkpoint) -> None:
    name, runner, _ = case
    batch, attention = with_expansion(batch_for(name)), "eager" if name == "roformer" else "sdpa"
    expected = padded_states(reference_model(name, checkpoint(name), attention), batch)
    assert deviation(forward(runner, batch), expected) <= TOLERANCE
    assert deviation(forward(runner, replace(batch, key_lengths=None)), expected) > 10 * TOLERANCE


def test_low_rank_factors_are_added_as_if_merged_into_the_weights(case: Case, checkpoint: Checkpoint) -> None:
    name, runner, plain = case
    shapes, batch = dict(runner.linear_shapes), batch_for(name)
    every = factors_for(shapes, shapes, seed=1)
    some = factors_for([layer for number, layer in enumerate(shapes) if number % 3 == 1], shapes, seed=2, rank=5)
    for low_rank in (every, some):
        model = merged(name, checkpoint(name), low_rank)
        expected = torch.cat([padded_states(model, batch.one(place)) for place in batch.places])
        assert deviation(forward(runner, batch, low_rank), expected) <= 2 * TOLERANCE
        assert deviation(plain, expected) > 10 * TOLERANCE
    assert error(case) <= TOLERANCE


def test_a_batch_that_is_preempted_between_layers_gets_the_same_numbers(case: Case) -> None:
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


def test_a_flipped_causal_flag_is_seen(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    right = VarlenLayout.attend_rows

    def flipped(layout: VarlenLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
        return right(layout, *states, **{**facts, "causal": not facts["causal"]})

    monkeypatch.setattr(VarlenLayout, "attend_rows", flipped)
    assert error(case) > TOLERANCE


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_seen(case: Case, off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = VarlenLayout.attend_rows
    windowed = ARCHITECTURES[case[0]].window

    def wrong(layout: VarlenLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
        assert facts["window"] is None or windowed
        return right(layout, *states, **{**facts, "window": facts["window"] and facts["window"] + off})

    monkeypatch.setattr(VarlenLayout, "attend_rows", wrong)
    assert (error(case) > TOLERANCE) == windowed


def test_the_whole_batch_as_one_sequence_is_seen(case: Case) -> None:
    assert error(case, cu_seqlens=batch_for(case[0]).cu_seqlens[[0, -1]]) > TOLERANCE


def test_gte_equals_its_description(tmp_path: Path) -> None:
    runner = build(write_new(tmp_path), [LOOP, *PACKED])
    assert runner.info.name == "plain-loop", runner.info.reason
    batch = packed_batch(SHORT, types=2)
    assert deviation(forward(runner, batch), reference(tmp_path, batch)) <= TOLERANCE


@torch.inference_mode()
@pytest.mark.parametrize("name", ["bert", "modernbert", "phi3", "qwen3"])
def test_the_model_it_took_the_weights_of_stays_what_it_was_and_shares_them(name: str, checkpoint: Checkpoint) -> None:
    folder, batch = checkpoint(name), batch_for(name)
    model = reference_model(name, folder)
    context = load_of(model, folder)
    loop = PlainLoop(context)
    weights = sum(each.untyped_storage().nbytes() for each in distinct(model))
    assert weights <= sum(each.nbytes for each in model.parameters()) + 1024
    ours, theirs = forward(loop, batch), forward(PackedRunner(context), batch)
    assert deviation(ours, theirs) <= TOLERANCE


def distinct(model: Any) -> list[torch.Tensor]:
    """Give one weight of each storage."""
    return list({each.untyped_storage().data_ptr(): each for each in model.parameters()}.values())


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "modernbert", "gemma3", "qwen3"])
def test_in_half_precision_it_is_as_near_to_float32_as_transformers_classes(
    name: str, dtype: torch.dtype, checkpoint: Checkpoint
) -> None:
    folder, batch = checkpoint(name), batch_for(name)
    exact = padded_states(reference_model(name, folder), batch)
    errors = []
    for make in (PlainLoop, PlainRunner):
        model = reference_model(name, folder).to(dtype)
        context = load_of(model, folder, dtype)
        errors.append(float((forward(make(context), batch).float() - exact).pow(2).mean().sqrt() / exact.std()))
    assert 0 < errors[0] <= 1.25 * errors[1]


@torch.inference_mode()
def test_biases_are_moved_into_norms_and_the_model_keeps_its_own(checkpoint: Checkpoint) -> None:
    model, folder = reference_model("bert", checkpoint("bert")), Path("nowhere")
    before = {name: each.clone() for name, each in model.named_parameters()}
    context = load_of(model, folder)
    loop = PlainLoop(context)
    assert all(layer.attention_output.bias is None and layer.down.bias is None for layer in loop._layers)
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())


@pytest.mark.parametrize(
    ("written", "reason"),
    [('"hidden_act": "gelu_fast"', "'gelu_fast' is none of gelu"), ('"is_decoder": true', "configured as a decoder")],
)
def test_a_model_it_does_not_compute_is_served_by_the_next(written: str, reason: str, tmp_path: Path) -> None:
    config = write_checkpoint("bert", tmp_path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **json.loads("{" + written + "}")}))
    info = build(tmp_path, [LOOP, *PACKED]).info
    assert info.name != "plain-loop"
    assert reason in info.reason


def test_heads_the_kernel_does_not_take_are_refused_at_load() -> None:
    config = tf.BertConfig(hidden_size=48, num_attention_heads=4, num_hidden_layers=1, intermediate_size=8)
    model, folder = tf.AutoModel.from_config(config), Path("nowhere")
    context = load_of(model, folder)
    with pytest.raises(RunnerUnfitError, match="its heads are 12 wide, and plain takes multiples of 8"):
        PlainLoop(context)


@pytest.mark.parametrize(("largest", "moves"), [(0.9, True), (1.5, False)])
def test_a_bias_larger_than_its_norm_s_weights_stays_in_its_product(largest: float, moves: bool) -> None:
    layer, after, norm = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), SimpleNamespace(is_rms=False, largest=1.0)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.1, -largest, 0.0, 0.2]))
    norm.bias = torch.zeros(4)
    source, other = FusedLinear([layer], torch.float32), FusedLinear([after], torch.float32)
    shift = _moved(source, cast("Any", norm), other)
    assert (source.bias is None) == moves == (shift is not None) == bool(norm.bias.any())
    assert torch.equal(other.bias, after.bias) != moves
