"""What sentence-transformers alone understands, served by it: padded, said so, and its vectors unchanged."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from sie_sentence_transformers.fallback.claims import claim_fallback
from sie_text.claims import claim_encoder
from tokenizers import Tokenizer

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Claim, InvalidInput, Item, ModelLoadError, NoClaim
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, context, deviation, reference, save_encoder, serve, task
from tests.pytorch.models import HIDDEN, randomise

TEXTS = ["", "fox", "the lazy dog jumps", *make_texts(9, 12, seed=2)]
WORDS = ["the", "lazy", "dog", "jumps", "fox"]
LONG = "the lazy dog jumps " * 30
BOUND = 1e-5

Checkpoint = Callable[[str], Path]


def words(folder: Path, *modules: Any, length: int | None = None, **arguments: Any) -> SentenceTransformer:
    table = torch.randn(len(WORDS) + 1, 16, generator=torch.Generator().manual_seed(0))
    embeddings = st.WordEmbeddings(WhitespaceTokenizer(["", *WORDS]), table, max_seq_length=length)
    chain = [embeddings, st.Pooling(16, "mean"), *modules]
    SentenceTransformer(modules=chain, device="cpu", **arguments).save_pretrained(str(folder), create_model_card=False)
    return reference(folder)


def said(encoder: Adapter) -> str:
    assert encoder.facts.notes["runner"] == "sentence-transformers (fallback)"
    return encoder.facts.notes["runner_reason"]


def test_word_embeddings_are_served_and_said_to_be_a_fallback(tmp_path: Path) -> None:
    model = words(tmp_path, st.Normalize(), prompts={"query": "fox "})
    card = read_card(tmp_path)
    assert not isinstance(claim_encoder(card), Claim)
    claim = claim_fallback(card)
    assert isinstance(claim, Claim)
    assert claim.priority < 0
    encoder = serve(tmp_path, "sentence-transformers")
    assert "padded" in said(encoder)
    assert encoder.facts.dims == {"dense": 16}
    assert encoder.facts.precision == "float32"
    answer = ask(encoder, TEXTS)
    assert deviation(answer.vectors, model.encode(TEXTS)) <= BOUND
    assert [answer.units[index].tokens for index in (1, 2)] == [1, 3]  # `the` is a stop word
    assert all(output.normalized for output in answer.outputs)
    assert deviation(ask(encoder, TEXTS, input_type="query").vectors, model.encode_query(TEXTS)) <= BOUND


def test_bags_of_words_and_static_embeddings_are_served(checkpoint: Checkpoint, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint("bert") / "tokenizer.json"))
    chains = {
        "bow": [st.BoW(WORDS, word_weights={"fox": 3.0}), st.Dense(len(WORDS), 8)],
        "static": [st.StaticEmbedding(tokenizer, embedding_dim=12)],
    }
    for name, chain in chains.items():
        for module in chain:
            randomise(module, 4)
        folder = tmp_path / name
        SentenceTransformer(modules=chain, device="cpu").save_pretrained(str(folder), create_model_card=False)
        encoder = serve(folder, "sentence-transformers", max_sequence_length=64)
        assert deviation(ask(encoder, TEXTS).vectors, reference(folder).encode(TEXTS)) <= BOUND
        assert said(encoder)
        assert "64" in encoder.facts.notes["max_sequence_length"]


def test_a_transformer_without_a_pooling_is_refused_as_the_library_cannot_encode_with_it(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    transformer = st.Transformer(str(checkpoint("bert")))
    SentenceTransformer(modules=[transformer], device="cpu").save_pretrained(str(tmp_path), create_model_card=False)
    with pytest.raises(KeyError, match="sentence_embedding"):
        reference(tmp_path).encode(TEXTS)
    for family in ("pytorch", "sentence-transformers"):
        with pytest.raises(ModelLoadError, match=r"chains Transformer, .* Add the Pooling module") as caught:
            serve(tmp_path, family)
        assert caught.value.failure == "CONFIG"


def test_a_model_with_one_encoder_for_queries_and_one_for_documents_is_served(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    routes = {
        kind: [st.Transformer(str(checkpoint(name))), st.Pooling(HIDDEN, "mean")]
        for kind, name in (("query", "bert"), ("document", "distilbert"))
    }
    router = st.Router.for_query_document(routes["query"], routes["document"])
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path), create_model_card=False)
    model = reference(tmp_path)
    encoder = serve(tmp_path, "sentence-transformers")
    assert deviation(ask(encoder, TEXTS, input_type="query").vectors, model.encode_query(TEXTS)) <= BOUND
    assert deviation(ask(encoder, TEXTS, input_type="document").vectors, model.encode_document(TEXTS)) <= BOUND


@pytest.mark.parametrize("name", ["bert", "mpnet", "qwen3"])
def test_both_families_give_the_same_vectors(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    prompts = {"query": "query: ", "other": "represent: "}
    pooling = st.Pooling(HIDDEN, "lasttoken", include_prompt=False)
    save_encoder(checkpoint(name), tmp_path, pooling, length=50, prompts=prompts, default_prompt_name="other")
    ours, theirs = serve(tmp_path), serve(tmp_path, "sentence-transformers")
    for fields in (
        {},
        {"input_type": "query"},
        {"input_type": "document"},
        {"instruction": "find:"},
        {"options": {"max_seq_length": 14, "normalize": True}},
        {"options": {"query_template": "a {text} b"}, "input_type": "query"},
    ):
        # Of a template around a long text the library cuts what follows the text, and the packed family the text.
        texts = TEXTS[:3] if "query_template" in fields.get("options", {}) else [*TEXTS, LONG]
        one, other = ask(ours, texts, **fields), ask(theirs, texts, **fields)
        assert deviation(one.vectors, other.vectors) <= BOUND
        assert [unit.truncated for unit in one.units] == [unit.truncated for unit in other.units]
        assert [unit.tokens for unit in one.units] == [unit.tokens for unit in other.units]
        assert [out.normalized for out in one.outputs] == [out.normalized for out in other.outputs]


def test_a_chat_model_without_modules_is_handed_over_by_the_packed_family(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "chat"
    folder.mkdir()
    for file in checkpoint("qwen3").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    )
    encoder = serve(folder)
    assert "chat template" in said(encoder)
    assert deviation(ask(encoder, TEXTS).vectors, reference(folder).encode(TEXTS)) <= BOUND


def test_truncation_is_reported_and_can_be_refused_and_the_other_end_is_not_cut(tmp_path: Path) -> None:
    model = words(tmp_path, length=7)
    encoder = serve(tmp_path, "sentence-transformers")
    (unit,) = encoder.prepare([Item(text=LONG)], task(truncate="end"))
    assert unit.truncated is not None
    assert (unit.truncated.tokens, unit.truncated.kept, unit.cost) == (90, 7, 7)
    assert deviation(ask(encoder, [LONG]).vectors, model.encode([LONG])) <= BOUND
    for truncate, param in (("error", "items[1].text"), ("start", "truncate")):
        with pytest.raises(InvalidInput) as refused:
            ask(encoder, ["fox", LONG], truncate=truncate)
        assert refused.value.param == param


def test_what_the_library_cannot_leave_out_is_refused(tmp_path: Path) -> None:
    words(tmp_path, st.Normalize())
    encoder = serve(tmp_path, "sentence-transformers")
    with pytest.raises(InvalidInput) as refused:
        ask(encoder, ["fox"], options={"normalize": False})
    assert refused.value.param == "options.normalize"
    with pytest.raises(InvalidInput) as refused:
        ask(encoder, ["fox", Item()])
    assert refused.value.param == "items[1].text"


def test_a_length_is_taken_where_the_library_takes_one_and_refused_elsewhere(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_encoder(checkpoint("bert"), tmp_path / "bert", st.Pooling(HIDDEN, "mean"), length=30)
    words(tmp_path / "words", length=7)
    encoder = serve(tmp_path / "bert", "sentence-transformers", max_sequence_length=20)
    assert encoder.facts.max_sequence_length == 20
    assert ask(encoder, [LONG]).units[0].tokens == 20
    assert ask(encoder, [LONG], options={"max_seq_length": 9}).units[0].tokens == 9
    by_words = serve(tmp_path / "words", "sentence-transformers", max_sequence_length=5)
    assert ask(by_words, [LONG]).units[0].tokens == 5
    for refusing, length in ((encoder, 21), (by_words, 3)):
        with pytest.raises(InvalidInput) as refused:
            ask(refusing, ["fox"], options={"max_seq_length": length})
        assert refused.value.param == "options.max_seq_length"
    longer = serve(tmp_path / "words", "sentence-transformers", max_sequence_length=50)
    assert "50" in longer.facts.notes["max_sequence_length"]


def test_threads_may_prepare_while_the_device_runs(checkpoint: Checkpoint) -> None:
    encoder = serve(checkpoint("bert"), "sentence-transformers")
    expected = ask(encoder, TEXTS)
    units = list(expected.units)
    with ThreadPoolExecutor(4) as pool:
        counted = [pool.submit(encoder.prepare, [Item(text=text) for text in TEXTS], task()) for _ in range(40)]
        for _ in range(10):
            outputs = encoder.finish(units, encoder.run(units))
            vectors = np.stack([output.dense for output in outputs if output.dense is not None])
            assert deviation(vectors, expected.vectors) <= BOUND
        for future in counted:
            assert [unit.tokens for unit in future.result(timeout=60)] == [unit.tokens for unit in units]


CODE = """
import torch
from sentence_transformers.sentence_transformer.modules import Module

class Half(Module):
    config_keys = []
    def forward(self, features):
        features["sentence_embedding"] = features["sentence_embedding"] / 2
        return features
    def save(self, output_path, *args, **kwargs):
        pass
    @classmethod
    def load(cls, *args, **kwargs):
        return cls()
"""


def test_code_that_comes_with_the_weights_runs_only_by_the_model_s_own_opt_in(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    (tmp_path / "half.py").write_text(CODE)
    chain = json.loads((tmp_path / "modules.json").read_text())
    chain.append({"idx": 2, "name": "2", "path": "", "type": "half.Half"})
    plain = ask(serve(tmp_path), TEXTS).vectors
    (tmp_path / "modules.json").write_text(json.dumps(chain))
    assert claim_encoder(read_card(tmp_path)) == NoClaim("modules.json names half.Half, a class of its own")
    for family in ("pytorch", "sentence-transformers"):
        with pytest.raises(ModelLoadError, match="trust_remote_code: true") as failed:
            serve(tmp_path, family)
        assert failed.value.failure == "CONFIG"
    encoder = serve(tmp_path, trust_remote_code=True)
    assert "a class of its own" in said(encoder)
    assert deviation(2 * ask(encoder, TEXTS).vectors, plain) <= BOUND


def test_a_load_touches_no_network(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    called: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        called.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for family in ("pytorch", "sentence-transformers"):
        ask(serve(tmp_path, family), ["fox"])
    assert called == []


def test_a_fault_of_the_library_is_a_typed_load_error(tmp_path: Path) -> None:
    words(tmp_path)
    (tmp_path / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.NoSuchModule"}]'
    )
    with pytest.raises(ModelLoadError, match="cannot load test/model") as failed:
        serve(tmp_path, "sentence-transformers")
    assert failed.value.permanent
    assert str(tmp_path) not in str(failed.value)
    assert context(tmp_path).card is not None
