"""DeBERTa packed has the states of transformers' own forward pass, and what is of another kind is left to that."""

import copy
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sie_gliner import deberta as packing
from sie_gliner.deberta import PackedDeberta, UnfitError
from sie_gliner.encoders import packed_encoder, replace_encoder
from transformers import DebertaV2Config, DebertaV2Model

from tests.gliner.checkpoints import encoder_config, randomise
from tests.gliner.loading import load, reference

LENGTHS = (33, 5, 5, 1, 70, 12)
"""Beyond the buckets and the positions of the configs below, equal neighbours, a single token."""
CONFIGS: dict[str, dict[str, Any]] = {
    "v3": {},
    "no buckets": {"position_buckets": -1, "max_relative_positions": 20},
    "projections of positions": {"share_att_key": False},
    "positions in the input": {"position_biased_input": True, "type_vocab_size": 2},
    "embeddings of another width": {"embedding_size": 24},
    "positions as they are": {"norm_rel_ebd": "none"},
}
FLOAT32 = 1e-5
FLOAT64 = 1e-7
"""transformers takes the square root that scores are divided by in float32."""


def deberta(**config: Any) -> Any:
    fields = {name: value for name, value in encoder_config("deberta", 50).items() if name != "model_type"}
    model = DebertaV2Model(DebertaV2Config(**fields | config)).eval()
    randomise(model)
    return model


def inputs() -> dict[str, torch.Tensor]:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(1, 50, mask.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_states_are_transformers_own(config: dict[str, Any]) -> None:
    model = deberta(**config)
    exact = copy.deepcopy(model).double()
    with torch.inference_mode():
        asked = inputs()
        kept = asked["attention_mask"].bool()
        expected = exact(**asked).last_hidden_state[kept]
        for each, close in ((exact, FLOAT64), (model, FLOAT32)):
            found = PackedDeberta(each)(**asked).last_hidden_state
            assert (found[kept] - expected).abs().max() <= close * expected.abs().max()
            assert not found[~kept].any()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"conv_kernel_size": 3}, "convolution"),
        ({"hidden_act": "relu"}, "relu"),
        ({"pos_att_type": ["c2p"]}, "both ways"),
        ({"relative_attention": False}, "both ways"),
    ],
)
def test_an_encoder_of_another_kind_is_refused_with_the_reason(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnfitError, match=reason):
        PackedDeberta(deberta(**config))


def test_a_checkpoint_is_served_by_it_and_others_say_why_not(checkpoint: Callable[..., Path]) -> None:
    served = load(checkpoint("span", "deberta"))
    assert packed_encoder(served._forward.model) is not None
    assert "encoder" not in served.facts.notes
    assert "BertModel is no DeBERTa" in load(checkpoint("span", "bert")).facts.notes["encoder"]


def test_no_more_than_one_layer_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = deberta()
    layers = [weakref.ref(layer) for layer in encoder.encoder.layer]
    alive = []

    class Counted(packing._Layer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            layers.append(weakref.ref(self))
            alive.append(sum(layer() is not None for layer in layers))

    monkeypatch.setattr(packing, "_Layer", Counted)
    count = len(layers)
    holder = SimpleNamespace(model=encoder, config=SimpleNamespace(fuse_layers=False))
    del encoder
    assert replace_encoder(SimpleNamespace(token_rep_layer=SimpleNamespace(bert_layer=holder))) is None
    assert len(alive) == 2 * count  # for the proof, and for good
    assert max(alive) == count + 1
    assert sum(layer() is not None for layer in layers) == count


def test_one_whose_states_differ_is_not_put_in_place(checkpoint: Callable[..., Path]) -> None:
    model = reference(checkpoint("span", "deberta")).model
    encoder = model.token_rep_layer.bert_layer.model
    norm = encoder.encoder.layer[1].output.LayerNorm
    norm.register_forward_hook(lambda *given: given[2] * (1 if given[1][0].dim() == 2 else 1.001))
    assert "differ from transformers' by 1" in str(replace_encoder(model))
    assert model.token_rep_layer.bert_layer.model is encoder
