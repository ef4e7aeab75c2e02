"""Late interaction: texts in, a vector a token out, against sentence-transformers' MultiVectorEncoder on one folder."""

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from sentence_transformers.base.modules import Normalize
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

from sie_core.contracts import InvalidInput, ModelLoadError
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, serve
from tests.pytorch.heads.colbert import (
    DIMS,
    EXPANSION,
    encode,
    furthest,
    projection,
    save_colbert,
    save_pylate,
    save_stanford,
)
from tests.pytorch.models import ARCHITECTURES, write_checkpoint
from tests.pytorch.test_lora import write_lora

BOUND = 1e-5
TEXTS = ["", "a", "a query, a document.", *make_texts(12, 12, seed=13)]
TYPES = (None, "query", "document")
MANY = {"output_types": ("multivector",)}

Checkpoint = Callable[[str], Path]


def check(encoder: Any, model: Any, bound: float = BOUND, **arguments: Any) -> None:
    for input_type in TYPES:
        expected = encode(model, TEXTS, input_type, **arguments)
        assert furthest(ask(encoder, TEXTS, input_type=input_type, **MANY), expected) <= bound


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gives_the_reference_s_vectors(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    fills = ARCHITECTURES[name].tokenizer != "t5" and name != "convbert"  # a convolution sees what attention does not
    model = save_colbert(checkpoint(name), tmp_path, expansion=EXPANSION if fills else None)
    encoder = serve(tmp_path)
    assert (encoder.facts.outputs, encoder.facts.dims) == (("multivector",), {"multivector": DIMS})
    # T5 does not scale its scores, so that they round more coarsely.
    check(encoder, model, 2 * BOUND if name == "t5" else BOUND, batch_size=1 if name == "convbert" else 16)


@pytest.mark.parametrize(
    "expansion",
    [
        None,
        EXPANSION,
        {**EXPANSION, "attend": True},
        {**EXPANSION, "strategy": "min", "length": 12},
        {**EXPANSION, "strategy": "min", "length": 12, "attend": True},
        {**EXPANSION, "token": "[SEP]"},
    ],
)
def test_queries_are_filled_up_as_the_files_say(
    expansion: dict[str, Any] | None, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = save_colbert(checkpoint("bert"), tmp_path, expansion=expansion)
    encoder = serve(tmp_path)
    check(encoder, model)
    queries = ask(encoder, TEXTS, input_type="query", **MANY)
    lengths = {len(output.multivector) for output in queries.outputs if output.multivector is not None}
    if expansion is not None:
        assert min(lengths) == expansion["length"]
        assert (max(lengths) == expansion["length"]) == (expansion["strategy"] == "fixed")
        assert queries.units[1].tokens < queries.units[1].cost == expansion["length"]
    documents = ask(encoder, TEXTS, input_type="document", **MANY)
    assert queries.units[0].key == documents.units[0].key


def test_lengths_of_queries_and_documents_are_the_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_colbert(checkpoint("modernbert"), tmp_path, lengths={"query_length": 9, "document_length": 15})
    encoder = serve(tmp_path)
    check(encoder, model)
    cut = ask(encoder, TEXTS, input_type="document", **MANY)
    assert max(unit.cost for unit in cut.units) == 15
    assert any(unit.truncated for unit in cut.units)


MASKS: dict[str, MultiVectorMask] = {
    "nothing skipped": MultiVectorMask(),
    "punctuation skipped": MultiVectorMask(list(string.punctuation)),
    "words that are no tokens": MultiVectorMask(["document", "no such word", "e"]),
    "queries too": MultiVectorMask(["a", "e", "[SEP]"], skiplist_tasks=["query", "document"]),
    "queries alone": MultiVectorMask(["a", "e"], skiplist_tasks="query"),
    "few tokens kept": MultiVectorMask(["a"], keep_only_token_ids=[2, 3, 40, 70, 71, 72, 75, 80, 90]),
}


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_keeps_the_reference_s_tokens(mask: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    modules = (projection(), MASKS[mask], Normalize("token_embeddings"))
    model = save_colbert(checkpoint("bert"), tmp_path, *modules, expansion=EXPANSION)
    check(serve(tmp_path), model)


HEADS: dict[str, Callable[[], list[Any]]] = {
    "no scaling": lambda: [projection(), MultiVectorMask()],
    "no projection": lambda: [MultiVectorMask(), Normalize("token_embeddings")],
    "mask last": lambda: [projection(), Normalize("token_embeddings"), MultiVectorMask(["a"])],
    "two layers with an activation": lambda: [
        projection(40, activation_function=torch.nn.GELU(), bias=True),
        projection(DIMS, 40, seed=2),
        MultiVectorMask(),
        Normalize("token_embeddings"),
    ],
    "a residual": lambda: [projection(use_residual=True), MultiVectorMask(), Normalize("token_embeddings")],
    "a token pooling that merges none": lambda: [
        projection(),
        MultiVectorMask(),
        Normalize("token_embeddings"),
        HierarchicalTokenPooling(normalize_embeddings=False),
    ],
}


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_the_reference_s_vectors(head: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_colbert(checkpoint("bert"), tmp_path, *HEADS[head](), expansion=EXPANSION)
    check(serve(tmp_path), model)


def test_normalisation_can_be_chosen_by_request(checkpoint: Checkpoint, tmp_path: Path) -> None:
    scaled = save_colbert(checkpoint("bert"), tmp_path / "scaled")
    plain = save_colbert(checkpoint("bert"), tmp_path / "plain", projection(), MultiVectorMask([".", ","]))
    for folder, normalize, model in (("scaled", False, plain), ("plain", True, scaled)):
        ours = ask(serve(tmp_path / folder), TEXTS, options={"normalize": normalize}, **MANY)
        assert furthest(ours, encode(model, TEXTS, None)) <= BOUND


PYLATE: dict[str, dict[str, Any]] = {
    "as pylate wrote it": {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 20,
        "document_length": 30,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [".", ",", "!"],
        "do_query_expansion": True,
    },
    "filling attended": {"model_type": "ColBERT", "query_prefix": "[Q] ", "attend_to_expansion_tokens": True},
    "no filling": {"model_type": "ColBERT", "do_query_expansion": False, "query_length": 11, "document_length": 30},
    "no skip list": {"model_type": "ColBERT", "query_length": 12, "skiplist_words": []},
    "without a model type": {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 14},
    "a prompt behind its prefix": {"model_type": "ColBERT", "query_prefix": "[Q] ", "prompts": {"query": "find: "}},
}


@pytest.mark.parametrize("case", PYLATE)
def test_files_of_pylate_are_read_as_the_reference_reads_them(
    case: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = save_pylate(checkpoint("bert"), tmp_path, **PYLATE[case])
    check(serve(tmp_path), model)


@pytest.mark.parametrize("marker", ["[Q]", "[Q] "])
def test_a_marker_of_the_vocabulary_is_one_token(marker: str, tmp_path: Path) -> None:
    base, folder = write_checkpoint("bert", tmp_path / "base"), tmp_path / "colbert"
    add_tokens(base, marker)
    model = save_pylate(base, folder, model_type="ColBERT", query_prefix=f"{marker.strip()} ", query_length=20)
    encoder = serve(folder)
    check(encoder, model)
    (unit,) = ask(encoder, ["a"], input_type="query", **MANY).units
    assert unit.payload.ids[1] == model.tokenizer.convert_tokens_to_ids(marker)


def add_tokens(folder: Path, *tokens: str) -> None:
    """Give the vocabulary words that no text is taken apart into, in the place of the last it learnt."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    model = content["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    for old, new in zip(names[-len(tokens) :], tokens, strict=True):
        model["vocab"][new] = model["vocab"].pop(old)
    model["merges"] = model["merges"][: -len(tokens)]
    file.write_text(json.dumps(content))


STANFORD: dict[str, dict[str, Any] | None] = {
    "colbert v2": {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 20,
        "doc_maxlen": 28,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
        "dim": DIMS,
    },
    "other settings": {"query_maxlen": 20, "mask_punctuation": False, "attend_to_mask_tokens": True},
    "no metadata": None,
}


@pytest.mark.parametrize("case", STANFORD)
def test_files_of_stanford_s_colbert_are_read_as_the_reference_reads_them(
    case: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = save_stanford(checkpoint("bert"), tmp_path, STANFORD[case])
    encoder = serve(tmp_path)
    check(encoder, model)
    assert encoder.facts.dims == {"multivector": DIMS}


def test_a_text_in_a_batch_is_the_text_alone(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_colbert(checkpoint("modernbert"), tmp_path, expansion={**EXPANSION, "strategy": "min"})
    encoder = serve(tmp_path)
    for input_type in TYPES:
        alone = [ask(encoder, [text], input_type=input_type, **MANY).outputs[0].multivector for text in TEXTS]
        assert (
            furthest(ask(encoder, TEXTS, input_type=input_type, **MANY), [each for each in alone if each is not None])
            <= BOUND
        )


def test_vectors_outlive_their_batch(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_colbert(checkpoint("bert"), tmp_path)
    encoder = serve(tmp_path)
    first = [output.multivector for output in ask(encoder, TEXTS, **MANY).outputs]
    kept = [each.copy() for each in first if each is not None]
    ask(encoder, [text + " more" for text in TEXTS], **MANY)
    assert all(np.array_equal(one, other) for one, other in zip(first, kept, strict=True) if one is not None)


def test_what_no_head_does_is_refused_by_name(checkpoint: Checkpoint, tmp_path: Path) -> None:
    refused: dict[str, tuple[list[Any], str]] = {
        "merging": ([projection(), MultiVectorMask(), HierarchicalTokenPooling(2.0)], "merges tokens"),
        "scaling": ([projection(), MultiVectorMask(), HierarchicalTokenPooling()], "scales documents alone"),
        "unscored": ([projection(), Normalize("token_embeddings")], "no MultiVectorMask"),
    }
    for name, (modules, problem) in refused.items():
        save_colbert(checkpoint("bert"), tmp_path / name, *modules, expansion=EXPANSION)
        with pytest.raises(ModelLoadError, match=problem) as error:
            serve(tmp_path / name)
        assert error.value.failure == "CONFIG"


def test_options_of_other_vectors_are_refused_by_name(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_colbert(checkpoint("bert"), tmp_path)
    for option, value in (("pooling", "cls"), ("max_active_dims", 3)):
        with pytest.raises(InvalidInput, match="gives multivector"):
            ask(serve(tmp_path), TEXTS, options={option: value}, **MANY)


def test_filled_queries_and_documents_share_a_batch(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_colbert(checkpoint("modernbert"), tmp_path, expansion=EXPANSION)
    encoder = serve(tmp_path)
    queries, documents = (ask(encoder, TEXTS, input_type=input_type, **MANY) for input_type in ("query", "document"))
    units = [unit for pair in zip(queries.units, documents.units, strict=True) for unit in pair]
    outputs = encoder.finish(units, encoder.run(units))
    for ours, input_type in ((outputs[::2], "query"), (outputs[1::2], "document")):
        vectors = [output.multivector for output in ours if output.multivector is not None]
        assert furthest(vectors, encode(model, TEXTS, input_type)) <= BOUND


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet"])
def test_lora_serves_queries_whose_filling_nothing_attends_to(
    name: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = save_colbert(checkpoint(name), tmp_path / "model", expansion=EXPANSION)
    encoder = serve(tmp_path / "model")
    adapter = write_lora(checkpoint(name), tmp_path / "lora", 1, target_modules="all-linear")
    lora = encoder.load_lora("legal", adapter)
    plain = encode(model, TEXTS, "query")
    model[0].model = peft.PeftModel.from_pretrained(model[0].model, str(adapter))
    for input_type in ("query", "document"):
        ours = ask(encoder, TEXTS, input_type=input_type, lora=lora, **MANY)
        assert furthest(ours, encode(model, TEXTS, input_type)) <= 10 * BOUND
    assert furthest(ask(encoder, TEXTS, input_type="query", lora=lora, **MANY), plain) > 100 * BOUND
