"""The family `static`: against sentence-transformers, against hand-made means, and with no torch in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model2vec import StaticModel
from numpy.typing import NDArray
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sie_text.plugin import sie_model_families
from sie_text.recipe.static import claim_static
from sie_text.static.encoder import load
from sie_text.static.preview import preview_static
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Claim, InvalidInput, Item, LoadContext, ModelConfig, ModelLoadError, Truncation
from tests.pytorch.encoders import Answer, ask, context, deviation, reference
from tests.text.tables import DIMS, TEXTS, WORDS, table, write_model2vec, write_static_embedding

BOUND = 1e-6


def serve(folder: Path, **arguments: Any) -> Adapter:
    return load(loading(folder, **arguments))


def loading(folder: Path, **arguments: Any) -> LoadContext:
    return context(folder, **arguments)


def mean(words: str, vectors: NDArray[np.float32] | None = None, *, unit: bool = False) -> NDArray[np.float32]:
    rows = table() if vectors is None else vectors
    found = [rows[WORDS.index(word)] for word in words.split()]
    vector = np.mean(found, axis=0, dtype=np.float64) if found else np.zeros(DIMS)
    return (vector / max(float(np.linalg.norm(vector)), 1e-12) if unit else vector).astype(np.float32)


def vectors(adapter: Adapter, texts: Sequence[str | Item], **fields: Any) -> NDArray[np.float32]:
    answer: Answer = ask(adapter, texts, **fields)
    return answer.vectors


@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_are_those_of_sentence_transformers(normalize: bool, tmp_path: Path) -> None:
    folder = write_static_embedding(tmp_path, normalize=normalize, prompts={"query": "find: ", "document": ""})
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    encoder = serve(folder)
    assert encoder.facts.dims == {"dense": DIMS}
    for input_type, call in ((None, model.encode), ("query", model.encode_query), ("document", model.encode_document)):
        assert deviation(vectors(encoder, TEXTS, input_type=input_type), call(TEXTS)) <= BOUND
    other = not normalize
    if other:
        asked = vectors(encoder, TEXTS, options={"normalize": True})
        assert deviation(asked, model.encode(TEXTS, normalize_embeddings=True)) <= BOUND


def test_the_size_of_the_files_cuts_vectors(tmp_path: Path) -> None:
    folder = write_static_embedding(tmp_path, normalize=True, truncate_dim=5)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    encoder = serve(folder)
    assert encoder.facts.dims == {"dense": 5}
    assert deviation(vectors(encoder, TEXTS), model.encode(TEXTS)) <= BOUND
    preview = preview_static(read_card(folder), ModelConfig("m"))
    assert preview is not None
    assert preview.dims == {"dense": 5}


@pytest.mark.parametrize("normalize", [False, True])
def test_model2vec_leaves_out_what_the_vocabulary_lacks(normalize: bool, tmp_path: Path) -> None:
    encoder = serve(write_model2vec(tmp_path, normalize=normalize))
    known = ["a short query", "the long document and the query", "", "and a b c", "find : a", ""]
    expected = np.stack([mean(words, unit=normalize) for words in known])
    assert deviation(vectors(encoder, TEXTS), expected) <= BOUND
    assert encoder.facts.max_sequence_length == 512


def test_rows_that_tokens_share_are_weighed_by_token(tmp_path: Path) -> None:
    shared = table(4)
    mapping = np.arange(len(WORDS)) % 4
    weights = np.linspace(0.5, 2, len(WORDS)).astype(np.float32)
    tensors = {"embeddings": shared, "mapping": mapping, "weights": weights}
    encoder = serve(write_model2vec(tmp_path, normalize=False, tensors=tensors))
    rows = shared[mapping] * weights[:, None]
    assert deviation(vectors(encoder, ["a short query"]), mean("a short query", rows)[None]) <= BOUND


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_tables_of_few_bits_are_averaged_in_float32(dtype: Any, tmp_path: Path) -> None:
    rows = (table() * 20).astype(dtype)
    encoder = serve(write_model2vec(tmp_path, normalize=False, tensors={"embeddings": rows}))
    expected = mean("the long document", rows.astype(np.float32))[None]
    assert deviation(vectors(encoder, ["the long document"]), expected) <= BOUND
    assert encoder.facts.precision == "float32"
    assert encoder.facts.notes["runner"].startswith(np.dtype(dtype).name)


def test_long_texts_are_cut_at_either_end_and_the_prompt_never(tmp_path: Path) -> None:
    encoder = serve(write_model2vec(tmp_path, normalize=False, max_length=4))
    for truncate, kept in (("end", "a b c d"), (None, "a b c d"), ("start", "c d e f")):
        (unit,) = encoder.prepare([Item(text="a b c d e f")], ask_task(truncate))
        assert unit.truncated == Truncation(6, 4)
        assert deviation(vectors(encoder, ["a b c d e f"], truncate=truncate), mean(kept)[None]) <= BOUND
    asked = vectors(encoder, ["a b c d e f"], truncate="start", input_type="query", instruction="find")
    assert deviation(asked, mean("find d e f")[None]) <= BOUND
    with pytest.raises(InvalidInput, match="takes 4"):
        vectors(encoder, ["a b c d e f"], truncate="error")


@pytest.mark.parametrize("model2vec", [False, True])
def test_files_beside_the_tokenizer_change_no_token_and_it_cuts_where_it_was_saved_to(
    model2vec: bool, tmp_path: Path
) -> None:
    folder = write_model2vec(tmp_path, max_length=None) if model2vec else write_static_embedding(tmp_path)
    own = folder if model2vec else folder / "0_StaticEmbedding"
    tokenizer = Tokenizer.from_file(str(own / "tokenizer.json"))
    tokenizer.normalizer = BertNormalizer(lowercase=False)
    tokenizer.enable_truncation(4, direction="left")
    tokenizer.save(str(own / "tokenizer.json"))
    config = {"do_lower_case": True, "unk_token": "the", "truncation_side": "right", "model_max_length": 3}
    (own / "tokenizer_config.json").write_text(json.dumps(config))
    texts = ["THE a b", "the unknown word", "a b c d e f"]
    library: Any = StaticModel.from_pretrained(str(folder)) if model2vec else reference(folder)
    expected = np.stack([library.encode([text])[0] for text in texts])
    assert deviation(vectors(serve(folder), texts), expected) <= BOUND


def ask_task(truncate: Any) -> Any:
    from sie_core.contracts import Task

    return Task("encode", ("dense",), truncate=truncate)


def test_damaged_tables_are_refused_by_name(tmp_path: Path) -> None:
    write_model2vec(tmp_path, tensors={"embeddings": table(3)})
    with pytest.raises(ModelLoadError, match=r"shape \(3, 12\), and its tokenizer 19 tokens"):
        serve(tmp_path)
    save_file({"other": table()}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"holds no tensor embedding.weight or embeddings"):
        serve(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelLoadError, match="cannot be read") as failed:
        serve(tmp_path)
    assert failed.value.failure == "CORRUPT"


def test_it_claims_static_vectors_before_libraries_that_would_run_them(tmp_path: Path) -> None:
    from sie_pytorch.plugin import sie_model_families as heavy

    for folder in (write_model2vec(tmp_path / "one"), write_static_embedding(tmp_path / "two", normalize=True)):
        card = read_card(folder)
        ours = claim_static(card)
        assert ours is not None
        others = [family.claims(card) for family in heavy()]
        assert all(claim.priority < ours.priority for claim in others if isinstance(claim, Claim))
    assert claim_static(read_card(tmp_path)) is None
    (family,) = sie_model_families()
    assert family.devices == frozenset()


def test_no_model_library_is_in_a_process_that_serves_static_vectors(tmp_path: Path) -> None:
    write_model2vec(tmp_path)
    code = (
        "import sys, pathlib\n"
        "from sie_core.catalog import read_card\n"
        "from sie_core.contracts import Device, Item, LoadContext, ModelConfig, Profile, ResolvedModel, Task\n"
        "import sie_text.plugin\n"
        "assert 'tokenizers' not in sys.modules and 'safetensors' not in sys.modules\n"
        "from sie_text.static.encoder import load\n"
        "folder, profile = pathlib.Path(sys.argv[1]), Profile('default')\n"
        "model = ResolvedModel('m', ModelConfig('m', profiles={'default': profile}), profile)\n"
        "adapter = load(LoadContext(model, Device('cpu'), 'float32', weights=folder, card=read_card(folder)))\n"
        "units = list(adapter.prepare([Item(text='a short query')], Task('encode', ('dense',))))\n"
        "assert adapter.finish(units, adapter.run(units))[0].dense.shape == (12,)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "sentence_transformers"} & set(done.stdout.split())
