"""DeBERTa packed has the states of transformers' own forward pass, and what is of another kind is left to that."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_pytorch.forward.deberta.distances import Distances
from sie_pytorch.forward.deberta.runner import PackedDeberta
from sie_pytorch.forward.protocol import RunnerContext, RunnerUnfitError
from sie_pytorch.forward.specs import RUNNERS
from transformers import DebertaV2Config, DebertaV2Model

from sie_core.contracts import ModelCard
from tests.pytorch.forward.support import (
    TOLERANCE,
    PackedBatch,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    with_expansion,
)
from tests.pytorch.models import DEBERTA, randomise

LENGTHS = (33, 5, 5, 1, 70, 12, *range(2, 16))
"""Beyond the buckets and the positions of the configs below, equal neighbours, a single token; several shares."""
CONFIGS: dict[str, dict[str, Any]] = {
    "v3": {},
    "no buckets": {"position_buckets": -1, "max_relative_positions": 20},
    "projections of positions": {"share_att_key": False},
    "positions in the input": {"position_biased_input": True, "type_vocab_size": 2},
    "embeddings of another width": {"embedding_size": 24},
    "positions as they are": {"norm_rel_ebd": "none"},
    "another activation": {"hidden_act": "gelu_new"},
}
V3 = {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False}


def deberta(**config: Any) -> Any:
    model = DebertaV2Model(DebertaV2Config(**{**DEBERTA, **V3, "type_vocab_size": 0, **config})).eval()
    randomise(model, 5)
    return model


def batch_of(model: Any) -> PackedBatch:
    return packed_batch(LENGTHS, types=model.config.type_vocab_size)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def serve(model: Any, **arguments: Any) -> Any:
        folder = tmp_path_factory.mktemp("deberta")
        model.save_pretrained(folder)
        return build(folder, RUNNERS, **{"threads": 2, **arguments})

    return serve


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_states_are_transformers_own(config: dict[str, Any], served: Callable[..., Any]) -> None:
    model = deberta(**config)
    batch, runner = batch_of(model), served(model)
    assert runner.info.name == "deberta", runner.info.reason
    exact = padded_states(copy.deepcopy(model).double(), batch)
    states = forward(runner, batch)
    assert deviation(states, exact) <= TOLERANCE
    alone = torch.cat([forward(runner, batch.one(place)) for place in batch.places])
    assert deviation(states, alone) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_give_the_states_of_float32(dtype: torch.dtype, served: Callable[..., Any]) -> None:
    model = deberta().to(dtype)
    runner, exact = served(model), padded_states(model.float(), batch_of(model))
    assert (runner.info.name, runner.info.precision) == ("deberta", "float32")
    assert deviation(forward(runner, batch_of(model)), exact) <= TOLERANCE


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="PyTorch prepacks no bfloat16 weights for this processor"
)
def test_in_bfloat16_it_is_as_near_to_float32_as_transformers_is(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")
    model = deberta()
    runner = served(model, precision="bfloat16")
    assert (runner.info.name, runner.info.precision) == ("deberta", "bfloat16")
    states = forward(runner, batch_of(model))
    assert states.dtype is torch.bfloat16
    expected = padded_states(model, batch_of(model))
    theirs = padded_states(copy.deepcopy(model).bfloat16(), batch_of(model))
    ours, own = ((each.float() - expected).norm(dim=-1).mean() for each in (states, theirs))
    assert ours <= own


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"conv_kernel_size": 3}, "convolution"),
        ({"hidden_act": "tanh"}, "tanh"),
        ({"pos_att_type": ["c2p"]}, "both ways"),
        ({"relative_attention": False}, "both ways"),
    ],
)
def test_a_model_of_another_kind_is_padded_and_the_notes_say_why(
    config: dict[str, Any], reason: str, served: Callable[..., Any]
) -> None:
    runner = served(deberta(**config))
    assert runner.info.name == "padded"
    assert reason in runner.info.reason


def test_tokens_that_nothing_attends_to_are_left_to_transformers(served: Callable[..., Any]) -> None:
    model = deberta()
    runner = served(model, expands_queries=True)
    assert runner.info.name.startswith("padded")
    assert "nothing attends to" in runner.info.reason
    batch = with_expansion(batch_of(model))
    alone = torch.cat([padded_states(model, batch.one(place)) for place in batch.places])
    assert deviation(forward(runner, batch), alone) <= TOLERANCE


def test_a_wrong_row_for_far_distances_is_seen_at_load(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Distances.rows
    monkeypatch.setattr(Distances, "rows", lambda self, length: right(self, length).roll(1))
    runner = served(deberta(position_buckets=256, max_relative_positions=512))
    assert runner.info.name == "padded"
    assert "not deberta: its states differ from each sequence alone" in runner.info.reason


def test_it_is_for_deberta_alone() -> None:
    model = torch.nn.Linear(2, 2)
    context = RunnerContext(
        model,
        Path(),
        ModelCard(Path(), {}),
        device=torch.device("cpu"),
        dtype=torch.float32,
        attention_backend="auto",
        threads=1,
    )
    with pytest.raises(RunnerUnfitError, match="a Linear is no DeBERTa v2"):
        PackedDeberta(context)
