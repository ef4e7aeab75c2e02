"""BGE-M3: three outputs of one forward pass, each against its description in float64."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sie_pytorch.forward import Batch, BuiltRunner
from sie_pytorch.heads.sparse.token_weights import TokenWeightHead
from sie_pytorch.heads.vectors.multivector import MultivectorHead
from sie_text.claims import claim_encoder, preview_encoder
from sie_text.heads.sparse import token_weights

from sie_core.catalog import read_card
from sie_core.contracts import Claim, ModelConfig, ModelLoadError
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, deviation, serve
from tests.pytorch.heads.bge_m3 import expected_vectors, expected_weights, pickle_layers, pin, save_bge_m3
from tests.pytorch.heads.colbert import furthest
from tests.pytorch.models import ARCHITECTURES, HIDDEN, VOCABULARY

BOUND = 3e-5
TEXTS = ["", "a", "a a a and a", "<unk> [UNK] </s> text", *make_texts(12, 12, seed=14)]
ALL = ("dense", "sparse", "multivector")

Checkpoint = Callable[[str], Path]


@pytest.mark.parametrize("name", [name for name, each in ARCHITECTURES.items() if not each.causal])
def test_every_architecture_gives_the_three_outputs_of_the_description(
    name: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = save_bge_m3(checkpoint(name), tmp_path)
    encoder = serve(tmp_path)
    assert encoder.facts.outputs == ALL
    assert encoder.facts.dims == {"dense": HIDDEN, "sparse": VOCABULARY, "multivector": HIDDEN}
    answer = ask(encoder, TEXTS, output_types=ALL)
    assert deviation(answer.vectors, model.encode(TEXTS, batch_size=1)) <= BOUND
    expected = expected_weights(model, tmp_path, TEXTS, VOCABULARY)
    assert deviation(answer.weights, expected.astype(np.float32)) <= BOUND
    assert furthest(answer, expected_vectors(model, tmp_path, TEXTS)) <= BOUND


def test_three_outputs_cost_one_forward_pass_and_equal_three_calls(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    encoder = serve(tmp_path)
    passes: list[int] = []
    right = BuiltRunner.forward

    def counted(runner: Any, batch: Batch) -> torch.Tensor:
        passes.append(len(batch.ids))
        return right(runner, batch)

    monkeypatch.setattr(BuiltRunner, "forward", counted)
    together = ask(encoder, TEXTS, output_types=ALL)
    assert passes == [sum(unit.tokens for unit in together.units)]
    dense, sparse, multivector = (ask(encoder, TEXTS, output_types=(output,)) for output in ALL)
    assert len(passes) == 4
    assert np.array_equal(together.vectors, dense.vectors)
    assert np.array_equal(together.weights, sparse.weights)
    assert furthest(together, [each.multivector for each in multivector.outputs if each.multivector is not None]) == 0
    assert dense.outputs[0].sparse is None
    assert sparse.outputs[0].dense is None


def test_a_text_in_a_batch_is_the_text_alone(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    encoder = serve(tmp_path)
    together = ask(encoder, TEXTS, output_types=ALL)
    alone = [ask(encoder, [text], output_types=ALL) for text in TEXTS]
    assert deviation(together.vectors, np.concatenate([each.vectors for each in alone])) <= BOUND
    assert deviation(together.weights, np.concatenate([each.weights for each in alone])) <= BOUND
    vectors = [each.outputs[0].multivector for each in alone]
    assert furthest(together, [each for each in vectors if each is not None]) <= BOUND


def test_only_the_largest_weights_are_kept_where_a_request_says_so(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    encoder = serve(tmp_path)
    whole = ask(encoder, TEXTS, output_types=("sparse",)).weights
    cut = ask(encoder, TEXTS, output_types=("sparse",), options={"max_active_dims": 3}).weights
    for row, kept in zip(whole, cut, strict=True):
        assert np.array_equal(np.sort(kept[kept > 0]), np.sort(row[row > 0])[-3:])


def test_pickled_layers_are_not_read_and_the_notes_say_what_to_do(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    claim = claim_encoder(read_card(tmp_path))
    assert isinstance(claim, Claim)
    assert "with BGE-M3's sparse and multi-vector layers beside" in claim.reason
    pickle_layers(tmp_path)
    encoder = serve(tmp_path, tasks={"encode": {"dense": {}, "sparse": {}, "multivector": {}}})
    assert encoder.facts.outputs == ("dense",)
    for output, name in (("sparse", "sparse_linear"), ("multivector", "colbert_linear")):
        note = encoder.facts.notes[output]
        assert f"{name}.pt is a Python pickle" in note
        assert f"'{name}.safetensors'" in note
    assert "declares sparse and multivector" in encoder.facts.notes["outputs"]


def test_pinned_layers_are_read_as_those_of_safetensors_are(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    expected = ask(serve(tmp_path), TEXTS, output_types=ALL)
    pins = pickle_layers(tmp_path)
    encoder = serve(tmp_path, pickles=pins)
    assert encoder.facts.outputs == ALL
    answer = ask(encoder, TEXTS, output_types=ALL)
    assert np.array_equal(answer.weights, expected.weights)
    assert furthest(answer, [each.multivector for each in expected.outputs if each.multivector is not None]) == 0
    told = preview_encoder(read_card(tmp_path), ModelConfig("m", pickles=pins))
    assert told is not None
    assert (told.outputs, told.dims) == (ALL, {"dense": HIDDEN, "sparse": VOCABULARY})


class RunsCode:
    """What a hostile pickle is made of."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._trace}",)


@pytest.mark.parametrize("fault", ["changed", "longer", "hostile", "absent", "no pin"])
def test_any_other_pickle_is_not_read_and_its_output_is_not_listed(
    fault: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path / "m3")
    pins, file = pickle_layers(tmp_path / "m3"), tmp_path / "m3/sparse_linear.pt"
    content = file.read_bytes()
    match fault:
        case "changed":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "longer":
            file.write_bytes(content + b"x")
        case "hostile":
            torch.save({"weight": RunsCode(tmp_path / "trace")}, file)
        case "absent":
            file.unlink()
        case "no pin":
            del pins["sparse_linear.pt"]
    encoder = serve(tmp_path / "m3", pickles=pins)
    assert encoder.facts.outputs == ("dense", "multivector")
    told = preview_encoder(read_card(tmp_path / "m3"), ModelConfig("m", pickles=pins))
    assert told is not None
    assert told.outputs == ("dense", "multivector")
    remedy = {"absent": "`sie cache pull`", "no pin": "Where you trust it, pin it"}.get(fault, "Fetch it again")
    assert "Not served: sparse_linear.pt" in encoder.facts.notes["sparse"]
    assert remedy in encoder.facts.notes["sparse"]
    assert not (tmp_path / "trace").exists()


def test_a_hostile_pickle_runs_nothing_even_where_it_is_pinned(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path / "m3")
    pins, file = pickle_layers(tmp_path / "m3"), tmp_path / "m3/sparse_linear.pt"
    torch.save({"weight": RunsCode(tmp_path / "trace"), "bias": torch.zeros(1)}, file)
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.pt holds no tensors weight and bias") as refused:
        serve(tmp_path / "m3", pickles={**pins, file.name: pin(file)})
    assert refused.value.failure == "CORRUPT"
    assert not (tmp_path / "trace").exists()


def test_without_modules_the_first_state_is_the_dense_vector(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    (tmp_path / "modules.json").unlink()
    (tmp_path / "sentence_bert_config.json").unlink()
    answer = ask(serve(tmp_path), TEXTS, output_types=ALL)
    assert deviation(answer.vectors, model.encode(TEXTS)) <= BOUND


def test_a_layer_of_another_shape_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    wide = {"weight": np.zeros((2, HIDDEN), dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
    save_file(wide, tmp_path / "sparse_linear.safetensors")
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.safetensors has weights of shape \(2, 32\)") as refused:
        serve(tmp_path)
    assert refused.value.failure == "CORRUPT"
    save_file({"weight": wide["weight"]}, tmp_path / "sparse_linear.safetensors")
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.safetensors lacks bias"):
        serve(tmp_path)


def test_a_special_token_that_is_weighed_is_seen(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    encoder = serve(tmp_path)
    head = encoder._heads["sparse"]
    assert isinstance(head, TokenWeightHead)
    head._weightless = head._weightless[:0]
    expected = expected_weights(model, tmp_path, TEXTS, VOCABULARY).astype(np.float32)
    assert deviation(ask(encoder, TEXTS, output_types=("sparse",)).weights, expected) > 100 * BOUND


def test_a_first_token_that_is_kept_is_seen(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    monkeypatch.setattr(MultivectorHead, "_kept", lambda head, batch: np.ones(len(batch.ids), dtype=bool))
    answer = ask(serve(tmp_path), TEXTS, output_types=("multivector",))
    assert furthest(answer, expected_vectors(model, tmp_path, TEXTS)) > 100 * BOUND


def test_the_smallest_in_place_of_the_largest_weight_is_seen(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    encoder = serve(tmp_path)

    class Wrong:
        """NumPy, but for one function."""

        maximum = np.minimum

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    monkeypatch.setattr(token_weights, "np", Wrong())
    expected = expected_weights(model, tmp_path, TEXTS, VOCABULARY).astype(np.float32)
    assert deviation(ask(encoder, TEXTS, output_types=("sparse",)).weights, expected) > 100 * BOUND
