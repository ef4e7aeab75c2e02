"""Documents encoded, queries looked up: against SparseEncoder of sentence-transformers on one folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling, Transformer
from sie_pytorch.forward import BuiltRunner
from sie_sentence_transformers.fallback.claims import claim_fallback
from sie_text.claims import claim_encoder
from sie_text.static import LookupEncoder, LookupKey

from sie_core.catalog import read_card
from sie_core.contracts import Claim, InvalidInput, ModelLoadError
from tests.pytorch.encoders import ask, deviation, serve
from tests.pytorch.heads.splade import reference, spelled_out
from tests.pytorch.heads.test_splade import BOUND, SPARSE, TEXTS
from tests.pytorch.models import VOCABULARY

Checkpoint = Callable[[str], Path]
SOME = [*TEXTS, "[MASK] a a [CLS]", "long " * 100]


def save_routed(
    base: Path, folder: Path, *, swapped: bool = False, lookup: dict[str, Any] | None = None, **arguments: Any
) -> SparseEncoder:
    """Save the checkpoint in `base` for documents, and random weights of tokens for queries."""
    transformer = Transformer(str(base), transformer_task="fill-mask", max_seq_length=60)
    weights = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(5))
    weights[::7] = 0
    static = SparseStaticEmbedding(transformer.tokenizer, weights)
    routes = [[static], [transformer, SpladePooling()]]
    router = Router.for_query_document(*(reversed(routes) if swapped else routes), **(lookup or {}))
    SparseEncoder(modules=[router], device="cpu", **arguments).save_pretrained(str(folder), create_model_card=False)
    return reference(folder)


def check(encoder: Any, model: SparseEncoder) -> None:
    for input_type in (None, "query", "document"):
        ours = ask(encoder, SOME, input_type=input_type, **SPARSE).weights
        assert deviation(ours, spelled_out(model, SOME, input_type)) <= BOUND


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize("swapped", [False, True])
def test_each_side_gives_the_reference_s_weights(
    name: str, swapped: bool, masked_language: Checkpoint, tmp_path: Path
) -> None:
    model = save_routed(
        masked_language(name), tmp_path, swapped=swapped, prompts={"query": "find: ", "document": "t: "}
    )
    encoder = serve(tmp_path)
    assert (encoder.facts.outputs, encoder.facts.dims) == (("sparse",), {"sparse": VOCABULARY})
    check(encoder, model)


def test_queries_run_no_transformer_and_share_no_batch_with_documents(
    masked_language: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_routed(masked_language("bert"), tmp_path)
    encoder = serve(tmp_path)
    monkeypatch.setattr(BuiltRunner, "forward", None)
    queries = ask(encoder, SOME, input_type="query", **SPARSE)
    assert deviation(queries.weights, spelled_out(model, SOME, "query")) <= BOUND
    assert queries.units[0].key == LookupKey()
    assert queries.units[0].cost == 1
    assert queries.units[0].tokens == 0
    with pytest.raises(TypeError):
        ask(encoder, SOME, input_type="document", **SPARSE)
    assert "without a forward pass" in encoder.facts.notes["routes"]


@pytest.mark.parametrize("route", ["query", "document", None])
def test_a_text_that_is_neither_takes_the_default_route(
    route: str | None, masked_language: Checkpoint, tmp_path: Path
) -> None:
    model = save_routed(masked_language("bert"), tmp_path, lookup={"default_route": route})
    check(serve(tmp_path), model)


def test_weights_by_word_are_read_where_the_files_keep_them_so(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    folder = tmp_path / "query_0_SparseStaticEmbedding"
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps({"path": str(tmp_path / "idf.json"), "frozen": True}))
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "idf.json").write_text(json.dumps({word: number / 100 for word, number in list(words.items())[20:]}))
    check(serve(tmp_path), reference(tmp_path))
    (tmp_path / "idf.json").write_text("[1, 2]")
    with pytest.raises(ModelLoadError, match=r"idf\.json is no map of tokens to weights"):
        serve(tmp_path)


def test_a_transformer_at_the_root_is_a_route_too(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    folder = tmp_path / "document_0_Transformer"
    for file in folder.iterdir():
        file.rename(tmp_path / file.name)
    folder.rmdir()
    config = (tmp_path / "router_config.json").read_text().replace("document_0_Transformer", "")
    (tmp_path / "router_config.json").write_text(config)
    check(serve(tmp_path), reference(tmp_path))


def test_a_model_may_look_everything_up(masked_language: Checkpoint, tmp_path: Path) -> None:
    tokenizer = Transformer(str(masked_language("bert")), transformer_task="fill-mask").tokenizer
    static = SparseStaticEmbedding(tokenizer, torch.rand(VOCABULARY))
    SparseEncoder(modules=[static], device="cpu").save_pretrained(str(tmp_path), create_model_card=False)
    encoder = serve(tmp_path)
    assert isinstance(encoder, LookupEncoder)
    check(encoder, reference(tmp_path))


def test_only_the_largest_weights_are_kept_where_the_files_or_a_request_say_so(
    masked_language: Checkpoint, tmp_path: Path
) -> None:
    model = save_routed(masked_language("bert"), tmp_path, max_active_dims=4)
    encoder = serve(tmp_path)
    check(encoder, model)
    cut = ask(encoder, SOME, input_type="query", options={"max_active_dims": 2}, **SPARSE).weights
    assert deviation(cut, spelled_out(model, SOME, "query", max_active_dims=2)) <= BOUND


def test_tokens_are_shown_as_the_route_that_encodes_sees_them(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    encoder = serve(tmp_path)
    (tokens,) = encoder.tokenize(["a query"], special=True)
    assert (tokens[0].text, tokens[-1].text) == ("[CLS]", "[SEP]")
    assert encoder.decode([[token.id for token in tokens]], special=False) == ["a query"]


def test_long_queries_are_cut_and_say_so(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    encoder = serve(tmp_path, max_sequence_length=12)
    (unit,) = ask(encoder, ["long " * 100], input_type="query", **SPARSE).units
    assert unit.truncated is not None
    assert (unit.cost, unit.truncated.kept) == (12, 12)
    with pytest.raises(InvalidInput, match="takes 12"):
        ask(encoder, ["long " * 100], input_type="query", truncate="error", **SPARSE)
    with pytest.raises(InvalidInput, match="gives sparse"):
        ask(encoder, ["a"], input_type="query", options={"pooling": "cls"}, **SPARSE)


def test_the_claim_names_the_routes_and_the_fallback_claims_none(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    claim = claim_encoder(read_card(tmp_path))
    assert isinstance(claim, Claim)
    assert claim.reason == (
        "its Router looks a query's weights up (SparseStaticEmbedding) and encodes a document (SpladePooling)"
    )
    assert claim_fallback(read_card(tmp_path)) is None


def test_damaged_routes_are_refused_by_name(masked_language: Checkpoint, tmp_path: Path) -> None:
    save_routed(masked_language("bert"), tmp_path)
    file = tmp_path / "query_0_SparseStaticEmbedding/model.safetensors"
    weights = load_file(file)
    save_file({"weight": weights["weight"][:-1]}, file)
    with pytest.raises(ModelLoadError, match=r"shape \(399,\), and its tokenizer 400 tokens"):
        serve(tmp_path)
    config = json.loads((tmp_path / "router_config.json").read_text())
    for change, problem in (
        ({"structure": {"query": ["query_0_SparseStaticEmbedding"]}}, "the routes query, not query and document"),
        ({"types": {**config["types"], "../x": "sentence_transformers.a.B"}}, "outside the model's folder"),
        ({"types": {**config["types"], "x": "my.Code"}}, "a class of its own"),
    ):
        (tmp_path / "router_config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ModelLoadError, match=problem):
            serve(tmp_path)


def test_a_look_up_that_counts_a_token_twice_is_seen(
    masked_language: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_routed(masked_language("bert"), tmp_path)
    right = LookupEncoder._look_up

    def counted(encoder: Any, row: Any) -> Any:
        vector = right(encoder, row)
        vector.values[:] *= np.array([(row.ids == number).sum() for number in vector.indices])
        return vector

    monkeypatch.setattr(LookupEncoder, "_look_up", counted)
    ours = ask(serve(tmp_path), SOME, input_type="query", **SPARSE).weights
    assert deviation(ours, spelled_out(model, SOME, "query")) > 100 * BOUND
