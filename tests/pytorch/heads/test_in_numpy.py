"""Every head in NumPy gives what the same head gives on PyTorch, from the same states, for every option."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.families.classify.loading import load as load_classifier
from sie_pytorch.heads.composed.model import PackedModel
from sie_text import heads as host
from sie_text.heads import pooling
from sie_text.options import POOLING_NAMES
from sie_text.recipe import (
    MODES,
    NotUnderstoodError,
    ProjectionSettings,
    TokenWeightSettings,
    read_pair_recipe,
    read_recipe,
)
from sie_text.sequences import PackedBatch

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Item, ItemOutput, ModelLoadError, PinnedFile, Task
from tests.pytorch import encoders
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.heads.colbert import EXPANSION, write_colbert
from tests.pytorch.heads.splade import write_splade
from tests.pytorch.models import HIDDEN, randomise
from tests.pytorch.pairs import support as pairs
from tests.pytorch.pairs.test_language_models import ANSWERS, MATCH, NO_MATCH

BOUND = 1e-5
"""Largest difference, in standard deviations of PyTorch's where those are above one."""
TEXTS = (
    "the search engine ranks every document by its embedding, and the index keeps what it has read",
    "fox",
    "A query is short. A document, then, is not.",
    "",
)
Checkpoint = Callable[[str], Path]
Options = dict[str, Any]

DENSE: dict[str, tuple[Any, ...]] = {
    **{f"pooled by {mode}": (st.Pooling(HIDDEN, mode),) for mode in MODES},
    "pooled by two": (st.Pooling(HIDDEN, ("cls", "mean")), st.Normalize()),
    "prompts left out": (st.Pooling(HIDDEN, "weightedmean", include_prompt=False),),
    **{
        f"activated by {name}": (st.Pooling(HIDDEN, "mean"), st.Dense(HIDDEN, 24, activation_function=activation()))
        for name, activation in {
            each.__name__: each
            for each in (
                torch.nn.ELU, torch.nn.GELU, torch.nn.Identity, torch.nn.LeakyReLU, torch.nn.Mish, torch.nn.ReLU,
                torch.nn.SELU, torch.nn.SiLU, torch.nn.Sigmoid, torch.nn.Softplus, torch.nn.Tanh,
            )
        }.items()
    },
    "normed": (st.Pooling(HIDDEN, "mean"), st.LayerNorm(HIDDEN), st.Dense(HIDDEN, 24, bias=False), st.Normalize()),
    "with residuals": (
        st.Pooling(HIDDEN, "mean"), st.Dense(HIDDEN, 24, use_residual=True), st.Dense(24, 24, use_residual=True),
    ),
}  # fmt: skip
NORMALIZE: tuple[Options, ...] = ({}, {"normalize": True}, {"normalize": False})


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("truncate_dim", [None, 10])
def test_dense_vectors(kind: str, truncate_dim: int | None, checkpoint: Checkpoint, tmp_path: Path) -> None:
    for number, module in enumerate(DENSE[kind]):
        randomise(module, number)
    prompts = {"query": "find: ", "document": "passage: "}
    encoders.write_encoder(checkpoint("bert"), tmp_path, *DENSE[kind], truncate_dim=truncate_dim, prompts=prompts)
    model = encoders.serve(tmp_path)
    for options in NORMALIZE:
        compare(model, heads(model, tmp_path), "dense", options)


@pytest.mark.parametrize("name", POOLING_NAMES)
def test_dense_vectors_by_the_option_pooling(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    encoders.write_encoder(checkpoint("roberta"), tmp_path, st.Pooling(HIDDEN, ("cls", "max")), st.Normalize())
    model = encoders.serve(tmp_path)
    for options in NORMALIZE:
        compare(model, heads(model, tmp_path), "dense", {"pooling": name, **options})


@pytest.mark.parametrize("name", ["bert", "camembert", "distilbert", "electra", "ernie", "modernbert", "xlm-roberta"])
@pytest.mark.parametrize(("pooling", "activation"), [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu")])
def test_splade(name: str, pooling: str, activation: str, masked_language: Checkpoint, tmp_path: Path) -> None:
    write_splade(masked_language(name), tmp_path, pooling, activation)
    model = encoders.serve(tmp_path)
    for options in ({}, {"max_active_dims": 7}):
        compare(model, heads(model, tmp_path), "sparse", options)


def test_token_weights_and_token_vectors_of_bge_m3(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_bge_m3(checkpoint("xlm-roberta"), tmp_path)
    model = encoders.serve(tmp_path)
    for options in ({}, {"max_active_dims": 2}):
        compare(model, heads(model, tmp_path), "sparse", options)
    for options in NORMALIZE:
        compare(model, heads(model, tmp_path), "multivector", options)


@pytest.mark.parametrize("input_type", ["query", "document"])
def test_late_interaction(input_type: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_colbert(checkpoint("bert"), tmp_path, expansion=EXPANSION)
    model = encoders.serve(tmp_path)
    for options in NORMALIZE:
        compare(model, heads(model, tmp_path), "multivector", options, input_type)


CLASSES = (
    "bert", "camembert", "deberta-v2", "distilbert", "electra", "ernie", "llama", "mistral", "modernbert", "qwen2",
    "qwen3", "roberta", "xlm-roberta",
)  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_classifiers(name: str, tmp_path: Path) -> None:
    folder = pairs.write_classifier(name, tmp_path, labels={0: "bad", 1: "so", 2: "good"})
    model = load_classifier(pairs.context(folder))
    head = host.build_classification_head(given(model, folder))
    assert head.classes == ("bad", "so", "good")
    for activation in (None, "identity", "sigmoid", "softmax"):
        compare(model, [head], "classifications", {} if activation is None else {"activation": activation})


def test_a_classifier_that_reads_the_mean(tmp_path: Path) -> None:
    folder = pairs.write_classifier("modernbert", tmp_path, labels=2, classifier_pooling="mean")
    model = load_classifier(pairs.context(folder))
    compare(model, [host.build_classification_head(given(model, folder))], "classifications", {})


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_pairs(name: str, tmp_path: Path) -> None:
    folder = pairs.write_classifier(name, tmp_path, labels=pairs.NLI)
    compare_pairs(folder, {})
    compare_pairs(folder, {"score_label": "neutral", "activation": "softmax"})


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "mistral"])
@pytest.mark.parametrize("tied", [True, False])
def test_pairs_by_the_tokens_of_a_language_model(name: str, tied: bool, tmp_path: Path) -> None:
    folder = pairs.write_language_model(name, tmp_path, tie_word_embeddings=tied)
    compare_pairs(folder, {}, loadtime=ANSWERS, tokens=(MATCH, NO_MATCH))


def test_weights_in_bfloat16_are_widened(checkpoint: Checkpoint, tmp_path: Path) -> None:
    modules = st.Pooling(HIDDEN, "mean"), st.Dense(HIDDEN, 24)
    encoders.write_encoder(checkpoint("bert"), tmp_path, *modules)
    file = tmp_path / "2_Dense/model.safetensors"
    half = {name: tensor.bfloat16() for name, tensor in load_file(file).items()}
    save_file(half, file)
    read = host.read_weights(file.parent, {name: tuple(tensor.shape) for name, tensor in half.items()})
    assert all(np.array_equal(read[name], tensor.float().numpy()) for name, tensor in half.items())
    rows = host.read_rows(file.parent, "linear.weight", [3, 1])
    assert np.array_equal(rows, half["linear.weight"].float().numpy()[[3, 1]])
    model = encoders.serve(tmp_path)
    compare(model, heads(model, tmp_path), "dense", {})


def test_a_class_that_is_not_listed_is_refused_by_its_name(masked_language: Checkpoint, tmp_path: Path) -> None:
    write_splade(masked_language("albert"), tmp_path / "splade")
    model = encoders.serve(tmp_path / "splade")
    with pytest.raises(
        NotUnderstoodError, match=r"saved from AlbertForMaskedLM, and without PyTorch .*Bert, Camembert"
    ):
        heads(model, tmp_path / "splade")
    folder = pairs.write_classifier("albert", tmp_path / "classes", labels=3)
    model = load_classifier(pairs.context(folder))
    with pytest.raises(NotUnderstoodError, match="saved from AlbertForSequenceClassification"):
        host.build_classification_head(given(model, folder))


def test_a_head_that_lacks_a_weight_is_damaged(tmp_path: Path) -> None:
    folder = pairs.write_classifier("roberta", tmp_path, labels=3)
    model = load_classifier(pairs.context(folder))
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.dense.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"lacks classifier\.dense\.bias") as refused:
        host.build_classification_head(given(model, folder))
    assert refused.value.failure == "CORRUPT"


def test_a_pickled_layer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    pinned = ProjectionSettings(tmp_path / "sparse_linear.pt", "weight", "bias", pinned=PinnedFile(1, "0" * 64))
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.pt is a Python pickle.*convert it to safetensors"):
        host.load_projection(TokenWeightSettings(pinned).projection)


SUM = {"pooling": "mean", "normalize": False}
FAULTS: dict[str, tuple[Any, str, Any, str, Options]] = {
    "the mean is the sum": (pooling, "_counts", lambda spans: np.float32(1), "dense", SUM),
    "the mean is the last": (pooling, "POOLERS", {"mean": pooling.POOLERS["lasttoken"]}, "dense", SUM),
    "vectors are not scaled": (host.UnitLength, "__call__", lambda step, vectors: vectors, "dense", {}),
    "a bias is left out": (host.Linear, "__call__", lambda step, vectors: vectors @ step.weight.T, "sparse", {}),
}
"""In what only the heads in NumPy compute: the rest they share, and the tests of the heads on PyTorch hold it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_bge_m3(checkpoint("bert"), tmp_path)
    model = encoders.serve(tmp_path)
    place, name, wrong, output, options = FAULTS[fault]
    compare(model, heads(model, tmp_path), output, options)
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        compare(model, heads(model, tmp_path), output, options)


def given(model: Adapter, folder: Path) -> host.HeadContext:
    assert isinstance(model, PackedModel)
    return host.HeadContext(read_card(folder), model.tokenizer, HIDDEN)


def heads(model: Adapter, folder: Path) -> list[host.Head]:
    return host.build_heads(read_recipe(read_card(folder)), given(model, folder))


def compare(model: Adapter, found: Sequence[host.Head], output: str, options: Options, input_type: Any = None) -> None:
    """Hold the head of `output` among those found to that of the model, over the same states."""
    task = Task("encode", (output,), options=options, input_type=input_type)  # type: ignore[arg-type]
    if output == "classifications":
        task = Task("extract", options=options)
    (head,) = [each for each in found if each.output == output]
    hold(model, head, list(model.prepare(items(model), task)), task)


def compare_pairs(folder: Path, options: Options, tokens: tuple[str, ...] = (), **arguments: Any) -> None:
    model = pairs.serve(folder, **arguments)
    recipe = read_pair_recipe(read_card(folder))
    if tokens:
        assert isinstance(model, PackedModel)
        recipe = replace(recipe, tokens=tuple(model.tokenizer.core.token_to_id(each) for each in tokens))
    head = host.build_pair_head(recipe, given(model, folder))
    task = Task("score", query=Item(text=TEXTS[1]), options=options)
    hold(model, head, list(model.prepare(items(model), task)), task)


def items(model: Adapter) -> list[Item]:
    """The texts, and one that spells the padding token out at its end: some classes pass over it."""
    assert isinstance(model, PackedModel)
    pad = model.tokenizer.pad
    spelled = "" if pad is None else str(model.tokenizer.core.id_to_token(pad))
    return [Item(text=text) for text in (*TEXTS, f"lazy dog {spelled}")]


def hold(model: Adapter, head: host.Head, units: list[Any], task: Task) -> None:
    assert isinstance(model, PackedModel)
    states: list[torch.Tensor] = []
    forward = model._runner.forward

    def kept(*arguments: Any) -> torch.Tensor:
        states.append(forward(*arguments))
        return states[-1]

    model._runner.forward = kept  # type: ignore[method-assign]
    theirs = model.finish(units, model.run(units))
    model._runner.forward = forward  # type: ignore[method-assign]
    own = model._heads[head.output]
    assert type(own) is not type(head) or head.output in ("classifications", "score")
    assert (head.dims, head.classes, head.notes) == (own.dims, own.classes, own.notes)
    choice: Hashable = head.choose(task)
    assert choice == own.choose(task)
    ours = head.apply(states[0].numpy(), PackedBatch([unit.payload for unit in units]), choice)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.normalized == other.normalized
        close(numbers(mine), numbers(other))


def numbers(output: ItemOutput) -> NDArray[Any]:
    if output.sparse is not None:
        return encoders.spell_out(output.sparse)
    if output.classifications is not None:
        return np.array([each.score for each in sorted(output.classifications, key=lambda each: each.label)])
    if output.score is not None:
        return np.array([output.score])
    found = output.dense if output.dense is not None else output.multivector
    assert found is not None
    assert found.dtype == np.float32
    return found


def close(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert np.abs(ours - theirs).max(initial=0) <= BOUND * max(1.0, float(theirs.std()) if theirs.size else 1.0)
