"""Text encoders behind the engine: real weights found in a package, folders of weights, Matryoshka sizes, ids."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer import modules as st
from sie_sdk.wire import unpack

from sie_core.cache.choices import kept_choices
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.pytorch.bare import minilm
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import deviation, reference, save_encoder
from tests.pytorch.models import HIDDEN

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = make_texts(12, 12, seed=21)
_numbers = itertools.count()

Checkpoint = Callable[[str], Path]


@pytest.fixture
async def engine(checkpoint: Checkpoint, tmp_path: Path) -> AsyncIterator[Engine]:
    models = tmp_path / "models"
    models.mkdir()
    prompts = {"query": "query: ", "document": "text: "}
    save_encoder(
        checkpoint("modernbert"), tmp_path / "tiny", st.Pooling(HIDDEN, "cls"), st.Normalize(), prompts=prompts
    )
    config = {
        "sie_id": "test/tiny",
        "weights_path": str(tmp_path / "tiny"),
        "accept_token_ids": True,
        "tasks": {"encode": {"dense": {"matryoshka_dims": [8, 16]}}},
    }
    (models / "tiny.yaml").write_text(yaml.safe_dump(config))
    settings = load_settings(
        models_dir=models, local_cache=tmp_path / "cache", hf_fallback=False, default_compute_precision="float32"
    )
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    yield engine
    await engine.close()


async def infer(engine: Engine, model: str, *items: str | Item, **fields: Any) -> InferenceReply:
    request = InferenceRequest(
        model,
        "encode",
        [Item(text=item) if isinstance(item, str) else item for item in items],
        request_id=f"r{next(_numbers)}",
        load_wait=LoadWait(60),
        **fields,
    )
    return await asyncio.wait_for(engine.infer(request), 60)


def dense(reply: InferenceReply) -> NDArray[np.float32]:
    return np.stack([unpack(item)["dense"]["values"] for item in reply.items])


async def test_the_embedded_default_is_served_without_a_network(engine: Engine) -> None:
    model = reference(minilm())
    replies = await asyncio.gather(*(infer(engine, MINILM, text) for text in TEXTS), infer(engine, MINILM, *TEXTS))
    expected = model.encode(TEXTS)
    assert deviation(dense(replies[-1]), expected) <= 1e-5
    assert deviation(np.concatenate([dense(reply) for reply in replies[:-1]]), expected) <= 1e-5
    tokens = sum(len(ids) for ids in model.tokenizer(TEXTS, truncation=True)["input_ids"])
    assert replies[-1].usage.input_tokens == tokens
    info = engine.model(MINILM)
    assert (info.adapter, info.dims, info.max_sequence_length) == ("cpu", {"dense": 384}, 256)
    assert "runner" in info.notes
    assert {"load.tokenizer", "load.weights", "load.warm"} <= set(info.load_stages_s)


async def test_a_folder_of_weights_is_served_with_its_prompts_and_sizes(engine: Engine, tmp_path: Path) -> None:
    model = reference(tmp_path / "tiny")
    for input_type, call in ((None, model.encode), ("query", model.encode_query), ("document", model.encode_document)):
        whole = dense(await infer(engine, "test/tiny", *TEXTS, input_type=input_type))
        assert deviation(whole, call(TEXTS)) <= 1e-5
    cut = dense(await infer(engine, "test/tiny", *TEXTS, dimensions=8))
    assert deviation(cut, model.encode(TEXTS, truncate_dim=8, normalize_embeddings=True)) <= 1e-5
    assert engine.model("test/tiny").matryoshka_dims == (8, 16, HIDDEN)


async def test_truncation_and_ids_travel_through_the_engine(engine: Engine, tmp_path: Path) -> None:
    ids = tuple(reference(tmp_path / "tiny").tokenizer(TEXTS[0])["input_ids"])
    both = dense(await infer(engine, "test/tiny", Item(token_ids=ids), TEXTS[0]))
    assert deviation(both[:1], both[1:]) <= 1e-5
    long = "a query is short " * 400
    assert (await infer(engine, "test/tiny", "a", long)).truncated == 1
    with pytest.raises(InferenceError) as refused:
        await infer(engine, "test/tiny", "a", long, truncate="error")
    assert (refused.value.code, refused.value.param) == ("INPUT_TOO_LONG", "items[1].text")


async def test_an_option_that_is_none_is_refused_and_one_that_is_is_used(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InferenceError) as refused:
        await infer(engine, "test/tiny", "a", options={"poling": "cls"})
    assert refused.value.param == "options.poling"
    assert "pooling" in refused.value.message
    model = reference(tmp_path / "tiny")
    model[1].pooling_mode = "mean"
    assert (
        deviation(dense(await infer(engine, "test/tiny", *TEXTS, options={"pooling": "mean"})), model.encode(TEXTS))
        <= 1e-5
    )


async def test_what_computes_is_told_in_replies_and_listings_with_who_asked_for_it(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_encoder(checkpoint("bert"), tmp_path / "tiny", st.Pooling(HIDDEN, "mean"))
    config = {
        "sie_id": "test/tiny",
        "weights_path": str(tmp_path / "tiny"),
        "profiles": {"default": {}, "exact": {"compute_precision": "float32"}},
    }
    (tmp_path / "models").mkdir()
    (tmp_path / "models/tiny.yaml").write_text(yaml.safe_dump(config))
    settings = load_settings(models_dir=tmp_path / "models", local_cache=tmp_path / "cache", hf_fallback=False)
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    try:
        for name, who in (
            ("test/tiny", "float16 is the default (SIE_DEFAULT_COMPUTE_PRECISION)"),
            ("test/tiny:exact", "compute_precision asks for float32"),
        ):
            reply, info = await infer(engine, name, "a text"), engine.model(name)
            assert info.notes["precision"].startswith(f"{info.precision}: {who}")
            assert info.runner == info.notes["runner"]
            assert reply.computed == (f"{info.precision} {info.runner}",)
            kept = kept_choices(settings, plugins, tmp_path / "tiny").all()
            served = {each.setup["model"]: (each.chosen, each.reason) for each in kept if each.about == "served"}
            assert served[name] == (reply.computed[0], info.notes["precision"].partition(": ")[2])
        assert engine.model("test/tiny:exact").precision == "float32"
    finally:
        await engine.close()
