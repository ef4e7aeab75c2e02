"""Tokens that nothing attends to, in some sequences of a batch: every runner as transformers' own masks have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.forward.specs import RUNNERS

from tests.pytorch.forward.support import (
    PACKED,
    TOLERANCE,
    PackedBatch,
    batch_for,
    build,
    deviation,
    forward,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.forward.test_proof import spec
from tests.pytorch.models import ARCHITECTURES, described

LOOP = [row for row in RUNNERS if row.name == "encoder-loop"]
CASES = [
    *(("packed", name) for name, architecture in ARCHITECTURES.items() if architecture.packed),
    *(("padded", name) for name, architecture in ARCHITECTURES.items() if not architecture.packed),
    *(("encoder-loop", name) for name in described(LOOP[0].features)),
]
COMPANY = ("convbert", "deberta", "deberta-v2")
"""A convolution sees what attention does not; in DeBERTa a token that is not seen averages all, padding included."""


def expected(name: str, folder: Path, batch: PackedBatch) -> torch.Tensor:
    """Give transformers' states, each sequence alone where its company changes them."""
    model = reference_model(name, folder)
    if model._supports_sdpa:  # spelled out, what sees nothing averages what it must not see
        model.set_attn_implementation("sdpa")
    if name in COMPANY:
        return torch.cat([padded_states(model, batch.one(place)) for place in batch.places])
    return padded_states(model, batch)


@pytest.mark.parametrize(("served", "name"), CASES)
def test_states_equal_those_under_the_model_s_own_mask(
    served: str, name: str, checkpoint: Callable[[str], Path], runner: Callable[[str], BuiltRunner]
) -> None:
    if served == "encoder-loop" or name in COMPANY:
        chosen = build(checkpoint(name), LOOP, expands_queries=True)
    else:
        chosen = runner(name)
    assert chosen.info.name.startswith(served), chosen.info.reason
    batch = with_expansion(batch_for(name))
    assert batch.key_lengths is not None
    states, right = forward(chosen, batch), expected(name, checkpoint(name), batch)
    assert deviation(states, right) <= TOLERANCE
    assert deviation(forward(chosen, replace(batch, key_lengths=None)), right) > 10 * TOLERANCE
    off = replace(batch, key_lengths=(batch.key_lengths + 1).minimum(batch.cu_seqlens.diff()))
    assert deviation(forward(chosen, off), right) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3", "mpnet"])
def test_a_filled_up_row_of_a_batch_equals_the_same_text_alone(name: str, runner: Callable[[str], BuiltRunner]) -> None:
    batch = with_expansion(batch_for(name))
    alone = torch.cat([forward(runner(name), batch.one(place)) for place in batch.places])
    assert deviation(forward(runner(name), batch), alone) <= TOLERANCE


@pytest.mark.parametrize("name", ["bert", "modernbert", "embeddinggemma"])
def test_eager_attention_gives_the_same(name: str, checkpoint: Callable[[str], Path], runner: Callable) -> None:
    batch = with_expansion(batch_for(name))
    eager = build(checkpoint(name), attention_backend="eager")
    assert deviation(forward(eager, batch), forward(runner(name), batch)) <= TOLERANCE


@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3", "deberta-v2", "gemma2"])
def test_the_runner_proves_it_where_the_model_has_such_tokens(name: str, checkpoint: Callable[[str], Path]) -> None:
    faulty = [spec("SeesFilling", priority=20), *RUNNERS]
    chosen = build(checkpoint(name), faulty, expands_queries=True)
    assert chosen.info.name != "SeesFilling"
    batch = with_expansion(batch_for(name))
    assert deviation(forward(chosen, batch), expected(name, checkpoint(name), batch)) <= TOLERANCE
    if ARCHITECTURES[name].packed:
        reason = "not SeesFilling: its states differ from each sequence alone where nothing attends to its last tokens"
        assert reason in chosen.info.reason
        assert build(checkpoint(name), [spec("SeesFilling"), *PACKED]).info.name == "SeesFilling"
