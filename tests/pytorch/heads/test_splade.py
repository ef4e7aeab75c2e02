"""SPLADE: texts in, weights over the vocabulary out, against SparseEncoder of sentence-transformers on one folder."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sie_pytorch.forward.transfers import Transfers
from sie_pytorch.heads.own_class.masked_language import load_masked_language_head
from sie_pytorch.heads.sparse import splade
from sie_pytorch.heads.sparse.splade import SegmentedSpladeHead
from sie_text.recipe import SpladeSettings

from sie_core.contracts import InvalidInput, ModelLoadError
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, deviation, serve
from tests.pytorch.encoders import reference as dense_reference
from tests.pytorch.heads.splade import PROMPTS, reference, save_splade, spelled_out
from tests.pytorch.models import HIDDEN, MASKED_LANGUAGE, VOCABULARY, write_new
from tests.pytorch.test_transfers import Recorder

BOUND = 3e-5
TEXTS = ["", "a", *make_texts(14, 12, seed=12)]
SPARSE = {"output_types": ("sparse",)}

Checkpoint = Callable[[str], Path]


@pytest.mark.parametrize("name", MASKED_LANGUAGE)
def test_every_architecture_gives_the_reference_s_weights(
    name: str, masked_language: Checkpoint, tmp_path: Path
) -> None:
    model = save_splade(masked_language(name), tmp_path, prompts=PROMPTS)
    encoder = serve(tmp_path)
    assert (encoder.facts.outputs, encoder.facts.dims) == (("sparse",), {"sparse": VOCABULARY})
    size = 1 if name == "convbert" else 16  # the reference's convolutions look into the padding of a batch
    for input_type in (None, "query", "document"):
        ours = ask(encoder, TEXTS, input_type=input_type, **SPARSE).weights
        assert deviation(ours, spelled_out(model, TEXTS, input_type, batch_size=size)) <= BOUND


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("tokens", [1, 7, 1000])
def test_every_pooling_gives_the_reference_s_weights_however_few_tokens_are_taken_at_a_time(
    pooling: str,
    activation: str,
    tokens: int,
    masked_language: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = save_splade(masked_language("bert"), tmp_path, pooling, activation)
    encoder = serve(tmp_path)
    monkeypatch.setattr(encoder._heads["sparse"], "_chunk", tokens)
    assert deviation(ask(encoder, TEXTS, **SPARSE).weights, spelled_out(model, TEXTS)) <= BOUND


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("tokens", [1, 7, 40, 1000])
def test_pooling_by_segments_gives_the_weights_of_pooling_text_by_text(
    pooling: str, activation: str, tokens: int, masked_language: Checkpoint, tmp_path: Path
) -> None:
    save_splade(masked_language("bert"), tmp_path, pooling, activation)
    encoder = serve(tmp_path)
    head = encoder._heads["sparse"]
    head._chunk = tokens
    expected = ask(encoder, TEXTS, **SPARSE).weights
    segmented = encoder._heads["sparse"] = SegmentedSpladeHead(head._settings, head._head)
    segmented._chunk = tokens
    found = ask(encoder, TEXTS, **SPARSE).weights
    assert np.array_equal(found, expected) if pooling == "max" else deviation(found, expected) <= BOUND
    encoder._transfers = Transfers(torch.device("cpu"), Recorder())
    assert np.array_equal(ask(encoder, TEXTS, **SPARSE).weights, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_segments_keep_what_is_no_number_in_the_text_it_is_of(pooling: str, dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, -2.0], [float("nan"), 3.0], [0.5, -1.0]], dtype=dtype)
    settings = SpladeSettings(pooling, "relu", None)
    head = SegmentedSpladeHead(settings, SimpleNamespace(dims=2, memory_bytes=0))
    first, second = head._pool(logits, torch.tensor([2, 1])).tolist()
    assert np.isnan(first[0])
    assert first[1] == pytest.approx(np.log1p(3.0), rel=1e-6)
    assert second == pytest.approx([np.log1p(0.5), 0.0], rel=1e-6)


def test_only_the_trial_on_a_gpu_pools_by_segments(
    masked_language: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_splade(masked_language("bert"), tmp_path)
    monkeypatch.setenv("SIE_CUDA_TRIAL", "all")
    assert type(serve(tmp_path)._heads["sparse"]) is splade.SpladeHead


def test_the_vocabulary_never_stands_beside_more_tokens_than_a_chunk(
    masked_language: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_splade(masked_language("bert"), tmp_path)
    monkeypatch.setattr(splade.SpladeHead.__init__, "__defaults__", (20 * VOCABULARY,))
    encoder = serve(tmp_path)
    head = encoder._heads["sparse"]
    seen: list[int] = []
    inner = head._head
    monkeypatch.setattr(head, "_head", lambda states: (seen.append(len(states)), inner(states))[1])
    answer = ask(encoder, TEXTS * 2, **SPARSE)
    assert sum(seen) == sum(unit.tokens for unit in answer.units) > 100
    assert max(seen) <= 20


def test_a_text_in_a_batch_is_the_text_alone(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_splade(masked_language("modernbert"), tmp_path)
    encoder = serve(tmp_path)
    together = ask(encoder, TEXTS, **SPARSE).weights
    alone = np.concatenate([ask(encoder, [text], **SPARSE).weights for text in TEXTS])
    assert deviation(together, alone) <= BOUND


def test_values_are_above_zero_float32_and_outlive_their_batch(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_splade(masked_language("bert"), tmp_path)
    encoder = serve(tmp_path)
    first = ask(encoder, TEXTS, **SPARSE)
    kept = first.weights
    ask(encoder, [text + " more" for text in TEXTS], **SPARSE)
    assert np.array_equal(first.weights, kept)
    for output in first.outputs:
        assert output.sparse is not None
        assert (output.sparse.indices.dtype, output.sparse.values.dtype) == (np.int32, np.float32)
        assert (output.sparse.values > 0).all()
        assert 0 < len(output.sparse.values) < VOCABULARY


def test_a_plain_checkpoint_with_a_language_head_is_what_the_reference_makes_of_it(masked_language: Checkpoint) -> None:
    folder = masked_language("distilbert")
    assert deviation(ask(serve(folder), TEXTS, **SPARSE).weights, spelled_out(reference(folder), TEXTS)) <= BOUND


def test_a_plain_checkpoint_is_pooled_where_its_config_wants_dense_vectors_alone(masked_language: Checkpoint) -> None:
    folder = masked_language("distilbert")
    dense = ask(serve(folder, tasks={"encode": {"dense": {}}}), TEXTS)
    assert deviation(dense.vectors, dense_reference(folder).encode(TEXTS)) <= BOUND
    assert serve(folder, tasks={"encode": {"sparse": {}}}).facts.outputs == ("sparse",)


def test_the_files_or_a_request_keep_only_the_largest_weights(masked_language: Checkpoint, tmp_path: Path) -> None:
    model = save_splade(masked_language("bert"), tmp_path, max_active_dims=9)
    encoder = serve(tmp_path)
    cut = ask(encoder, TEXTS, **SPARSE)
    assert deviation(cut.weights, spelled_out(model, TEXTS)) <= BOUND
    assert max(np.count_nonzero(row) for row in cut.weights) == 9
    more = ask(encoder, TEXTS, options={"max_active_dims": 30}, **SPARSE)
    assert deviation(more.weights, spelled_out(model, TEXTS, max_active_dims=30)) <= BOUND
    assert cut.units[0].key == more.units[0].key


def test_options_of_dense_vectors_are_refused_by_name(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_splade(masked_language("bert"), tmp_path)
    encoder = serve(tmp_path)
    for option, value in (("pooling", "cls"), ("normalize", True)):
        with pytest.raises(InvalidInput, match="gives sparse") as refused:
            ask(encoder, TEXTS, options={option: value}, **SPARSE)
        assert refused.value.param == f"options.{option}"
        with pytest.raises(ModelLoadError, match=f"runtime.{option}"):
            serve(tmp_path, runtime={option: value})


def test_a_checkpoint_without_the_language_head_is_refused(
    masked_language: Checkpoint, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_splade(masked_language("bert"), tmp_path)
    bare = load_file(checkpoint("bert") / "model.safetensors")
    save_file(bare, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"no whole masked-language-modelling head.*cls\.predictions") as refused:
        serve(tmp_path)
    assert refused.value.failure == "CORRUPT"


def test_a_pooling_nobody_defines_is_refused_and_not_averaged_into_dense_vectors(
    masked_language: Checkpoint, tmp_path: Path
) -> None:
    save_splade(masked_language("bert"), tmp_path)
    (tmp_path / "1_SpladePooling/config.json").write_text('{"pooling_strategy": "mean"}')
    with pytest.raises(ModelLoadError, match="pools by 'mean'") as refused:
        serve(tmp_path)
    assert refused.value.failure == "CONFIG"


def test_the_head_of_gte_s_published_checkpoints_is_read(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    write_new(tmp_path, prefix="new.")
    weights = load_file(tmp_path / "model.safetensors")
    shapes = {
        "dense.weight": (HIDDEN, HIDDEN),
        "dense.bias": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "norm.bias": (HIDDEN,),
    }
    head = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    head["decoder.bias"] = random.standard_normal(VOCABULARY).astype(np.float32)
    weights |= {f"lm_head.{name}": weight for name, weight in head.items()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["NewForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    states = random.standard_normal((5, HIDDEN))
    with torch.inference_mode():
        logits = load_masked_language_head(tmp_path, torch.float32, torch.device("cpu"))(torch.tensor(states).float())
    expected = _gte_head(states, {name: weight.astype(np.float64) for name, weight in head.items()})
    expected = expected @ weights["new.embeddings.word_embeddings.weight"].astype(np.float64).T + head["decoder.bias"]
    assert deviation(logits.numpy(), expected.astype(np.float32)) <= BOUND
    assert serve(tmp_path).facts.outputs == ("sparse",)


def _gte_head(states: np.ndarray, head: dict[str, np.ndarray]) -> np.ndarray:
    """Dense layer, GELU, layer norm, in float64."""
    states = states @ head["dense.weight"].T + head["dense.bias"]
    erf = torch.erf(torch.tensor(states / np.sqrt(2))).numpy()
    states = states * (1 + erf) / 2
    centred = states - states.mean(1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-12)
    return scaled * head["norm.weight"] + head["norm.bias"]
