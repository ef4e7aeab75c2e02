"""Dtypes and outputs made of others, as they travel: every dtype of every output in both formats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from sie_sdk import wire

from sie_core.api import create_app
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from sie_core.postprocess import OUTPUT_DTYPES
from sie_core.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = "sie-fake/tokens"
MSGPACK = {"Content-Type": "application/msgpack"}
KINDS = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "uint8": "|u1", "binary": "|u1", "ubinary": "|u1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    preload = tuple(TOKENS + profile for profile in ("", ":muvera", ":smve"))
    settings = Settings(models_dir=tmp_path_factory.mktemp("models"), preload_models=preload, hf_fallback=False)
    plugins = discover(Settings(), BUILTINS)
    engine = build_engine(settings, plugins)
    await engine.start()
    app = create_app(engine, settings, registry=engine.metrics.registry)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=30) as client:
        yield client
    await engine.close()


async def encoded(client: httpx.AsyncClient, model: str, **params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encode one text twice: as msgpack and as JSON say it."""
    body = {"items": [{"text": "three small words"}], "params": params}
    packed = await client.post(f"/v1/encode/{model}", content=wire.pack(body), headers=MSGPACK)
    plain = await client.post(f"/v1/encode/{model}", json=body)
    assert (packed.status_code, plain.status_code) == (200, 200), plain.text
    return wire.unpack(packed.content)["items"][0], plain.json()["items"][0]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("profile", "output"), [("", "multivector"), (":muvera", "dense")])
async def test_a_row_is_cast_last_and_labelled_in_both_formats(
    client: httpx.AsyncClient, profile: str, output: str, dtype: str
) -> None:
    exact, _ = await encoded(client, TOKENS + profile)
    packed, plain = await encoded(client, TOKENS + profile, output_dtype=dtype)
    (row,) = (each for each in OUTPUT_DTYPES if each.name == dtype)

    values = packed[output]["values"]
    assert (values.dtype.str, packed[output]["dtype"]) == (KINDS[dtype], dtype.replace("ubinary", "binary"))
    assert np.array_equal(values, row.cast(exact[output]["values"]))
    sizes = {"dims": 64} if output == "dense" else {"token_dims": 16, "num_tokens": 3}
    for told in (packed, plain):
        assert set(told) == {output}
        assert told[output].items() >= {**sizes, "dtype": packed[output]["dtype"]}.items()
    assert np.allclose(plain[output]["values"], values.astype(float), rtol=1e-6)


@pytest.mark.parametrize("dtype", KINDS)
async def test_only_float16_changes_a_sparse_output_and_never_its_indices(
    client: httpx.AsyncClient, dtype: str
) -> None:
    exact, _ = await encoded(client, f"{TOKENS}:smve")
    packed, plain = await encoded(client, f"{TOKENS}:smve", output_dtype=dtype)
    kind = "float16" if dtype == "float16" else "float32"
    assert (packed["sparse"]["dtype"], plain["sparse"]["dtype"]) == (kind, kind)
    assert packed["sparse"]["values"].dtype == np.dtype(kind)
    assert packed["sparse"]["indices"].dtype == np.int32
    assert np.array_equal(packed["sparse"]["indices"], exact["sparse"]["indices"])
    assert plain["sparse"]["indices"] == exact["sparse"]["indices"].tolist()
    assert np.allclose(packed["sparse"]["values"], exact["sparse"]["values"], rtol=1e-3)


async def test_a_multi_vector_model_serves_openais_embeddings_through_muvera(client: httpx.AsyncClient) -> None:
    exact, _ = await encoded(client, f"{TOKENS}:muvera")
    body = {"model": f"{TOKENS}:muvera", "input": "three small words", "dimensions": 64}
    answer = (await client.post("/v1/embeddings", json=body)).json()
    assert answer["data"][0]["embedding"] == pytest.approx(exact["dense"]["values"].tolist(), abs=1e-6)

    refused = await client.post("/v1/embeddings", json={**body, "dimensions": 32})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")
    assert "64" in refused.json()["error"]["message"]


async def test_the_models_list_tells_what_each_profile_returns(client: httpx.AsyncClient) -> None:
    models = {each["name"]: each for each in (await client.get("/v1/models")).json()["models"]}
    assert (models[TOKENS]["outputs"], models[TOKENS]["dims"]) == (["multivector"], {"multivector": 16})
    assert (models[f"{TOKENS}:muvera"]["outputs"], models[f"{TOKENS}:muvera"]["dims"]) == (["dense"], {"dense": 64})
    assert (models[f"{TOKENS}:smve"]["outputs"], models[f"{TOKENS}:smve"]["dims"]) == (["sparse"], {"sparse": 256})


async def test_what_is_wrong_with_a_switch_is_told_with_its_path(client: httpx.AsyncClient) -> None:
    body = {"items": [{"text": "a"}], "params": {"options": {"muvera": {"seed": 1}}}}
    refused = await client.post(f"/v1/encode/{TOKENS}:muvera", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "params.options.muvera")
    body = {"items": [{"text": "a"}], "params": {"output_dtype": "bfloat16"}}
    refused = await client.post(f"/v1/encode/{TOKENS}", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "params.output_dtype")
    assert "ubinary" in refused.json()["error"]["message"]
