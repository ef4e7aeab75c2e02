"""Random msgpack, from nonsense to nearly right: a 200 or a 4xx in the one shape, and never a hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sie_sdk import wire

HANG_S = 60
HEADERS = {"Content-Type": "application/msgpack"}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from([np.zeros((2, 3), np.float32), np.float16(1), np.array([], np.int8)])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=5), child, max_size=3),
    max_leaves=8,
)


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(right, right, right, ANYTHING)


def bodies(value: Callable[[st.SearchStrategy[Any]], st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies whose every field went through `value`, which may put something else in its place."""
    item = st.fixed_dictionaries(
        {"text": value(st.text(max_size=40))},
        optional={"id": value(st.text(max_size=5)), "metadata": value(st.just({})), "more": ANYTHING},
    )
    params = st.fixed_dictionaries(
        {},
        optional={
            "labels": value(st.lists(st.text(min_size=1, max_size=5), max_size=3)),
            "output_schema": value(st.just({"properties": {"a": {}}})),
            "output_types": value(st.lists(st.sampled_from(["dense", "sparse", "multivector"]), min_size=1)),
            "output_dtype": value(st.sampled_from(["float32", "float16", "int8", "uint8", "binary", "ubinary"])),
            "instruction": value(st.text(max_size=9)),
            "truncate": value(st.sampled_from(["end", "start", "error"])),
            "options": value(st.fixed_dictionaries({}, optional={"is_query": value(st.booleans())})),
        },
    )
    query = st.fixed_dictionaries({"text": value(st.text(min_size=1, max_size=9))}, optional={"id": value(st.text())})
    return st.fixed_dictionaries(
        {"items": value(st.lists(item, min_size=1, max_size=4)), "query": value(query)},
        optional={"params": value(params), "more": ANYTHING, "instruction": value(st.text(max_size=9))},
    )


RIGHT = bodies(lambda strategy: strategy)
DOUBTFUL = bodies(mostly)
WRONG = st.fixed_dictionaries(
    {"items": st.lists(st.dictionaries(st.sampled_from(["text", "images", "audio", "video", "document"]), ANYTHING))},
    optional={"params": ANYTHING},
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message that is whole, cut, damaged, or no message at all."""
    kind = draw(st.sampled_from(["whole", "whole", "damaged", "cut", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=60))
    message = bytearray(wire.pack(draw(st.one_of(RIGHT, DOUBTFUL, WRONG))))
    if kind == "cut":
        return bytes(message[: draw(st.integers(0, len(message)))])
    if kind == "damaged":
        for _ in range(draw(st.integers(1, 3))):
            message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message)


@pytest.fixture(scope="module")
def client(fake_server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake_server, timeout=HANG_S) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        ("/v1/encode/sie-fake/embedder", "items"),
        ("/v1/score/sie-fake/embedder", "scores"),
        ("/v1/extract/sie-fake/media", "items"),
    ],
)
def test_any_bytes_get_an_answer_in_shape(client: httpx.Client, path: str, listed: str) -> None:
    answered: Counter[int] = Counter()

    @settings(
        max_examples=200, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(messages())
    def run(message: bytes) -> None:
        reply = client.post(path, content=message, headers=HEADERS)
        answered[reply.status_code] += 1
        if reply.status_code == 200:
            body = wire.unpack(reply.content)
            assert isinstance(body, dict)
            assert all(item.keys() & {"dense", "sparse", "multivector", "score", "entities"} for item in body[listed])
            return
        error = reply.json()["error"]
        assert error["code"]
        assert error["message"]
        assert reply.status_code < 500 or (reply.status_code == 503 and reply.headers["retry-after"]), error

    run()
    print(dict(answered))
    assert answered[200] >= 0.05 * answered.total()
    assert answered.total() >= 100
