"""Prompts by the names that weights and clients give them, in every dialect: against sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from sentence_transformers import SentenceTransformer

from sie_core.settings import Settings
from tests.api.serving import OVER, serving
from tests.text.tables import write_static_embedding

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ["a short query", "the long document"]
WEIGHTS = {
    "passages": {"query": "find ", "passage": "the document "},
    "searches": {"search_query": "find ", "search_document": "the document ", "clustering": "a b "},
    "retrieval": {"retrieval.query": "find ", "retrieval.passage": "the document "},
    "queries": {"query": "find "},
    "bare": {},
}
"""The prompts of each model's weights."""
IGNORED = "X-SIE-Ignored-Options"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("named")
    for name, prompts in WEIGHTS.items():
        write_static_embedding(made / "weights" / name, prompts=prompts)
        (made / f"{name}.yaml").write_text(json.dumps({"sie_id": f"t/{name}", "weights_path": f"./weights/{name}"}))
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def served(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    models = [f"t/{name}" for name in WEIGHTS]
    async with serving(Settings(models_dir=folder, preload_models=models, hf_fallback=False), request.param) as client:
        yield client


def bodies(model: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The requests that name a prompt, one a dialect that has it."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/embeddings", {"model": model, "input": TEXTS, "task": name}),
        ("/v1/embeddings", {"model": model, "input": TEXTS, "input_type": name}),
        (f"/tei/{model}/embed", {"inputs": TEXTS, "prompt_name": name, "normalize": False}),
    ]
    if name.startswith("search_"):
        both = {"model": model, "texts": TEXTS, "input_type": name}
        asked += [("/v1/embed", both), ("/v2/embed", both)]
    return asked


def vectors(told: Any) -> Any:
    if isinstance(told, dict):
        told = told["data"] if "data" in told else told["embeddings"]
    if isinstance(told, dict):
        told = told["float"]
    return [each["embedding"] if isinstance(each, dict) else each for each in told]


@pytest.mark.parametrize("weights", ["passages", "searches", "retrieval"])
@pytest.mark.parametrize(
    "role", [("search_query", "retrieval.query"), ("passage", "search_document", "retrieval.passage")]
)
async def test_a_name_finds_the_prompt_of_its_role(served: httpx.AsyncClient, folder: Path, weights: str, role) -> None:
    own = next(
        name for name in WEIGHTS[weights] if name in (*role, "query") and ("query" in name) == ("query" in role[0])
    )
    model = SentenceTransformer(str(folder / "weights" / weights), device="cpu", local_files_only=True)
    expected = model.encode(TEXTS, prompt_name=own)
    assert np.abs(expected - model.encode(TEXTS)).max() > 0.05
    for name in role:
        for path, body in bodies(f"t/{weights}", name):
            reply = await served.post(path, json=body)
            np.testing.assert_allclose(vectors(reply.json()), expected, atol=1e-6, err_msg=f"{path} {name}")
            assert IGNORED not in reply.headers


async def test_a_role_without_a_prompt_is_told_in_the_reply_s_headers(served: httpx.AsyncClient) -> None:
    native = {"items": [{"text": text} for text in TEXTS], "params": {"input_type": "document"}}
    requests = [
        *bodies("t/queries", "search_document"),
        *bodies("t/queries", "document"),
        ("/v1/encode/t/queries", native),
    ]
    for path, body in requests:
        assert (await served.post(path, json=body)).headers.get(IGNORED) == "input_type", path
    for path, body in [*bodies("t/bare", "search_document"), ("/v1/encode/t/bare", native)]:
        assert IGNORED not in (await served.post(path, json=body)).headers


async def test_an_unknown_name_is_refused(served: httpx.AsyncClient) -> None:
    fields = {"/v1/embeddings": ["task", "input_type"], "/tei/t/searches/embed": ["prompt_name"]}
    for path, body in bodies("t/searches", "s2p"):
        reply = await served.post(path, json=body)
        assert reply.status_code in (400, 422)
        told = reply.json()
        told = told["error"] if isinstance(told["error"], dict) else told
        assert told["param"] in fields[path]
        assert "search_query" in json.dumps(told)
    known = await served.post("/v2/embed", json={"model": "t/searches", "texts": TEXTS, "input_type": "clustering"})
    assert known.status_code == 200
    refused = await served.post("/v2/embed", json={"model": "t/queries", "texts": TEXTS, "input_type": "clustering"})
    assert (refused.status_code, refused.json()["param"]) == (400, "input_type")
