"""Every option of a request in every type that msgpack has: what does not suit is a 400 that names it, never a 500."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from sie_fake.options import OPTIONS
from sie_sdk import wire

from sie_core.catalog.options.engine_options import ENGINE_OPTIONS, SPELLINGS
from sie_core.settings import Settings
from tests.api.serving import OVER, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MSGPACK = {"Content-Type": "application/msgpack", "X-SIE-Timeout-Ms": "5000"}
BODIES: dict[str, dict[str, Any]] = {
    "encode/sie-fake/embedder": {},
    "encode/sie-fake/tokens:muvera": {},
    "score/sie-fake/reranker": {"query": {"text": "some text"}},
    "extract/sie-fake/extractor": {},
}
PARAMS = {"extract/sie-fake/extractor": {"labels": ["person"]}}
VALUES: tuple[Any, ...] = (
    None,
    True,
    3,
    -1,
    2**63,
    0.5,
    float("nan"),
    float("inf"),
    "zzz",
    b"zzz",
    [],
    ["zzz"],
    [np.ones(2, np.float32)],
    {},
    {"q": [1]},
    {"num_repetitions": np.ones(2, np.float32)},
    np.ones(0, np.float32),
    np.ones(1, np.int64),
    np.ones(2, np.float32),
    np.ones((2, 2), np.bool_),
    np.float32(0.5),
    np.float64(0.5),
    np.int64(3),
    np.bool_(True),
)
OF_THE_ENGINE = (*ENGINE_OPTIONS, *SPELLINGS, "profile", "muvera", "muvera_config", "smve", "unknown")
OF_THE_FAMILY = tuple(option.name for option in OPTIONS if not option.name.startswith("latency"))
PAIRS = [
    {"lora": one, "lora_id": other} for one, other in product((np.ones(2), "org/a", [1], {"a": np.ones(2)}), repeat=2)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    models = tuple(dict.fromkeys(path.partition("/")[2] for path in BODIES))
    folder = tmp_path_factory.mktemp("models")
    async with serving(Settings(models_dir=folder, preload_models=models, hf_fallback=False), request.param) as client:
        yield client


async def answer(client: httpx.AsyncClient, path: str, options: dict[str, Any]) -> tuple[int, Any]:
    body = {"items": [{"text": "some text"}], **BODIES[path]}
    body |= (
        {"options": options} if path.startswith("score") else {"params": {**PARAMS.get(path, {}), "options": options}}
    )
    reply = await client.post(f"/v1/{path}", content=wire.pack(body), headers=MSGPACK)
    return reply.status_code, None if reply.is_success else reply.json()


@pytest.mark.parametrize("path", BODIES)
async def test_no_value_of_any_type_is_a_failure_of_the_server(client: httpx.AsyncClient, path: str) -> None:
    failed = []
    names = OF_THE_ENGINE if path == "encode/sie-fake/tokens:muvera" else (*OF_THE_ENGINE, *OF_THE_FAMILY)
    for options in [*({name: value} for name, value in product(names, VALUES)), *PAIRS]:
        status, body = await answer(client, path, options)
        if status not in (200, 400, 502):
            failed.append((options, status, body))
        elif status == 400:
            assert body["error"]["param"].startswith(("options.", "params.options.")), body
            assert "truth value" not in body["error"]["message"], body
    assert not failed, f"{len(failed)} of them: {failed[:5]}"


async def test_an_array_as_the_profile_is_refused_by_name(client: httpx.AsyncClient) -> None:
    status, body = await answer(client, "encode/sie-fake/tokens:muvera", {"profile": np.ones(2)})

    assert status == 400
    assert body["error"]["param"] == "params.options.profile"
    assert "the profiles of sie-fake/tokens are default, muvera, smve" in body["error"]["message"]


async def test_arrays_under_both_names_of_one_option_are_refused_by_name(client: httpx.AsyncClient) -> None:
    status, body = await answer(client, "encode/sie-fake/embedder", {"lora": np.ones(2), "lora_id": np.ones(2)})

    assert status == 400
    assert "options.lora" in body["error"]["param"]
