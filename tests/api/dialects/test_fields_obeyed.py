"""Every field that a route of another API has is obeyed: it changes the answer, or is refused where a model cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from sie_core.settings import Settings
from tests.api.dialects.test_fields import CONTENT, DIALECTS
from tests.api.serving import serving
from tests.pytorch.pairs.support import write_classifier

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINILM, CLASSIFIER = "sentence-transformers/all-MiniLM-L6-v2", "tiny/classifier"
TOKENS, SPARSE = "sie-fake/tokens", "sie-fake/embedder"
LONG = " ".join(f"word{number}" for number in range(800))
TEXTS = ["Bees make honey in the old hollow tree.", LONG]
BODIES: Final[dict[str, dict[str, Any]]] = {
    "EmbeddingsBody": {"input": TEXTS},
    "CohereEmbedBody": {"texts": TEXTS},
    "RerankBody": {"query": "who makes honey?", "documents": TEXTS},
    "CohereRerankBody": {"query": "who makes honey?", "documents": TEXTS},
    "TeiDocumentsBody": {"query": "who makes honey?", "documents": TEXTS},
    "TeiRerankBody": {"query": "who makes honey?", "texts": TEXTS},
    "NvidiaRankingBody": {"query": "who makes honey?", "passages": TEXTS},
    "VllmScoreBody": {"text_1": "who makes honey?", "text_2": TEXTS},
    "VllmClassifyBody": {"input": TEXTS, "model": CLASSIFIER},
    "OllamaEmbedBody": {"input": TEXTS},
    "OllamaEmbeddingsBody": {"prompt": LONG},
    "TeiEmbedBody": {"inputs": TEXTS},
    "TeiSparseBody": {"inputs": TEXTS},
    "TeiEmbedAllBody": {"inputs": TEXTS},
    "TeiSimilarityBody": {"inputs": {"source_sentence": TEXTS[0], "sentences": [LONG]}},
    "TeiPredictBody": {"inputs": [[TEXTS[0]], [LONG]], "model": CLASSIFIER},
    "TeiTokenizeBody": {"inputs": TEXTS},
    "TeiDecodeBody": {"ids": [101, 7592, 102]},
}
"""What each schema is asked, of MiniLM where it names no other model; one of the texts is too long."""
PROBES: Final[dict[str, Any]] = {
    "encoding_format": "base64", "embedding_type": "int8", "output_dtype": "int8", "embedding_types": ["int8"],
    "dimensions": 8, "output_dimension": 8, "input_type": "query", "task": "no_such_prompt",
    "prompt_name": "no_such_prompt", "truncate": False, "truncation": False, "truncation_side": "left",
    "truncation_direction": "left", "truncate_prompt_tokens": 8, "max_tokens_per_query": 2, "max_tokens_per_doc": 4,
    "normalize": False, "normalized": False, "late_chunking": True, "return_multivector": True, "max_tokens": 5,
    "raw_scores": True, "use_activation": False, "activation": False, "return_text": True, "return_documents": True,
    "top_n": 1, "top_k": 1, "add_special_tokens": False, "skip_special_tokens": False,
    "parameters": {"truncate": False, "top_k": 1},
}  # fmt: skip
"""A value of each field that asks for something else than is done without it."""
OWN: Final[dict[tuple[str, str], Any]] = {
    ("CohereEmbedBody", "truncate"): "NONE",
    ("NvidiaRankingBody", "truncate"): "NONE",
    ("CohereEmbedBody", "input_type"): "classification",
}
"""Other values, of routes that have others."""
ELSEWHERE: Final = {
    "input_type": "MiniLM has no prompts, and the reply's headers say that it is ignored",
    "normalize": "MiniLM's vectors have unit length by its own files, so it is refused by families alone",
    "normalized": "as `normalize`",
    "raw_scores": "MiniLM compares vectors: there are no logits",
    "activation": "as `raw_scores`",
    "use_activation": "as `raw_scores`",
    "instruction": "of models that take one",
    "options": "of families",
    "keep_alive": "ignored; the table says why",
}
"""Fields that change nothing of this model's answers, with the reason; tests of the dialects hold them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    write_classifier("bert", folder / CLASSIFIER, labels={0: "bad", 1: "so", 2: "good"})
    settings = Settings(models_dir=folder, preload_models=(MINILM, CLASSIFIER, TOKENS, SPARSE), hf_fallback=False)
    async with serving(settings, "engine") as client:
        yield client


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_field_changes_the_answer_or_is_refused(client: httpx.AsyncClient, dialect: str) -> None:
    path, schema, _ = DIALECTS[dialect]
    name = schema.__name__
    body = {"model": {"TeiEmbedAllBody": TOKENS, "TeiSparseBody": SPARSE}.get(name, MINILM)} | BODIES[name]
    plain = await client.post(path, json=body)
    assert plain.status_code == 200, plain.text
    unchanged = []
    for field in schema.model_fields.keys() - CONTENT:
        if field in ELSEWHERE:
            continue
        reply = await client.post(path, json=body | {field: OWN.get((name, field), PROBES[field])})
        assert reply.status_code < 500, reply.text
        if told(reply) == told(plain):
            unchanged.append(field)
    assert unchanged == []


def told(reply: httpx.Response) -> Any:
    """Return what a reply says, less what differs each time."""
    body = reply.json()
    if isinstance(body, dict):
        return {key: value for key, value in body.items() if key not in ("id", "created", "total_duration")}
    return body
