"""What the clients of a soak do: answered, wrong, failing and abandoned requests, and the answers each may get."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
from sie_sdk import wire

from tests.bench.clients.formats import FORMATS, JSON, MSGPACK
from tests.bench.processes.servers import MODEL
from tests.bench.workload.texts import KINDS as LENGTHS
from tests.bench.workload.words import sentences
from tests.soak.growth.models import LEAKING

Random = np.random.Generator
Leaving = Literal["stays", "half-way", "at once", "soon"]

HOST = "localhost"
OK = "200"
LOADING = "503 MODEL_LOADING"
WAIT = {"Prefer": "wait=20"}
MOST_BODY_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Sent:
    """The bytes of a request, and how long its client stays."""

    data: bytes
    leaves: Leaving = "stays"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: how often it comes beside the others, how one is made, what it may be answered with.

    An answer is its status, with the error's code where it has one: `200`, `503 MODEL_LOADING`.
    """

    name: str
    weight: float
    make: Callable[[Random], Sent]
    expected: frozenset[str] = frozenset({OK, LOADING})


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Write a whole HTTP request."""
    own = {"Host": HOST, "Content-Type": JSON, "Accept": JSON, "Content-Length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**own, **(headers or {})}.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def call(operation: str, model: str, headers: Mapping[str, str] = WAIT, **body: Any) -> bytes:
    """Write a request of a native route."""
    return request("POST", f"/v1/{operation}/{model}", orjson.dumps(body), headers)


def text(random: Random, kind: str = "mixed") -> str:
    """Make a text."""
    return sentences(LENGTHS[kind].draw(1, random)[0], random)


def items(random: Random, most: int = 4, kind: str = "mixed") -> list[dict[str, Any]]:
    """Make one to `most` items."""
    return [{"text": text(random, kind)} for _ in range(int(random.integers(1, most + 1)))]


def _openai(random: Random) -> Sent:
    form = FORMATS[str(random.choice(["float", "base64"]))]
    return Sent(form.request(HOST, MODEL, [item["text"] for item in items(random)]))


def _long(random: Random) -> Sent:
    return Sent(FORMATS["msgpack"].request(HOST, MODEL, [text(random, "long"), text(random, "short")]))


def _vectors_score(random: Random) -> Sent:
    query = {"text": text(random, "short")}
    return Sent(call("score", MODEL, query=query, items=items(random, kind="short")))


def _every_output(random: Random) -> Sent:
    params = {"output_types": ["dense", "sparse", "multivector"]}
    body = wire.pack({"items": items(random), "params": params})
    headers = {"Content-Type": MSGPACK, "Accept": MSGPACK, **WAIT}
    return Sent(request("POST", "/v1/encode/soak/embedder", body, headers))


def _media(random: Random) -> Sent:
    picture = base64.b64encode(random.bytes(int(random.integers(1_000, 100_000)))).decode()
    return Sent(call("encode", "soak/media", items=[{"images": [{"data": picture, "format": "png"}]}]))


def _fixed(operation: str, model: str, text: str, **more: Any) -> Callable[[Random], Sent]:
    return lambda _: Sent(call(operation, model, items=[{"text": text}], **more))


def _tokens(random: Random) -> Sent:
    profile = str(random.choice(["", ":muvera", ":smve"]))
    return Sent(call("encode", f"soak/tokens{profile}", items=items(random)))


def _score(random: Random) -> Sent:
    return Sent(call("score", "soak/reranker", query={"text": text(random, "short")}, items=items(random, 16)))


def _extract(random: Random) -> Sent:
    named = [{"text": f"person=Ada {text(random)} Ada-knows->Bob"}]
    return Sent(call("extract", "soak/extractor:windowed", items=named, params={"labels": ["person"]}))


def _hurried(model: str, most_ms: int) -> Callable[[Random], Sent]:
    def make(random: Random) -> Sent:
        headers = {"X-SIE-Timeout-Ms": str(int(random.integers(1, most_ms)))}
        return Sent(call("encode", model, headers, items=items(random, 8)))

    return make


def _unheard_of(random: Random) -> str:
    return f"soak/none-{random.integers(10**12)}"


def _unknown_model(random: Random) -> Sent:
    return Sent(call("encode", _unheard_of(random), items=items(random)))


def _unknown_option(random: Random) -> Sent:
    options = {_unheard_of(random): 1}
    return Sent(call("encode", MODEL, items=[{"text": "a"}], params={"options": options}))


def _leaves(leaves: Leaving) -> Callable[[Random], Sent]:
    def make(random: Random) -> Sent:
        model = MODEL if random.random() < 0.5 else "soak/embedder:slow"
        data = call("encode", model, items=items(random, 8))
        return Sent(data[: len(data) // 2] if leaves == "half-way" else data, leaves)

    return make


def _looks(path: str) -> Callable[[Random], Sent]:
    return lambda _: Sent(request("GET", path, headers={"Accept": "*/*"}))


def _one(*expected: str) -> frozenset[str]:
    return frozenset(expected)


NO_ANSWER = "left"
"""What a request counts as whose client did not wait."""
LATE = _one(OK, LOADING, "504 DEADLINE_EXCEEDED", "503 QUEUE_FULL")
INVALID = _one("400 INVALID_INPUT")

ANSWERED = (
    Kind("OpenAI, MiniLM", 8, _openai, _one(OK)),
    Kind("long, MiniLM", 2, _long, _one(OK)),
    Kind("score by vectors, MiniLM", 1, _vectors_score, _one(OK)),
    Kind("every output", 3, _every_output),
    Kind("images", 2, _media),
    Kind("multi-vectors, MUVERA, SMVE", 2, _tokens),
    Kind("score", 3, _score),
    Kind("extract", 2, _extract),
)
HURRIED = (
    Kind("deadline, MiniLM", 1, _hurried(MODEL, 60), LATE),
    Kind("deadline, slow model", 1, _hurried("soak/embedder:slow", 60), LATE),
)
WRONG = (
    Kind("unknown model", 1, _unknown_model, _one("404 MODEL_NOT_FOUND")),
    Kind("unknown route", 1, lambda r: Sent(request("GET", f"/{_unheard_of(r)}")), _one("404 NOT_FOUND")),
    Kind("unknown option", 1, _unknown_option, INVALID),
    Kind("no items", 0.5, lambda _: Sent(call("encode", MODEL, items=[])), INVALID),
    Kind("no JSON", 0.5, lambda r: Sent(request("POST", f"/v1/encode/{MODEL}", r.bytes(200))), INVALID),
    Kind("wrong output", 0.5, _fixed("encode", MODEL, "a", params={"output_types": ["sparse"]}), INVALID),
    Kind("wrong operation", 0.5, _fixed("encode", "soak/extractor", "a"), INVALID),
    Kind(
        "too large", 0.5, lambda _: Sent(request("POST", f"/v1/encode/{MODEL}", b" " * (MOST_BODY_BYTES + 1))),
        _one("413 PAYLOAD_TOO_LARGE"),
    ),
)  # fmt: skip
FAILING = (
    Kind("crash", 0.5, _fixed("encode", "soak/embedder:faulty", "[crash]"), _one("500 INFERENCE_ERROR", LOADING)),
    Kind("NaN", 0.5, _fixed("encode", "soak/embedder:faulty", "[nan]"), _one("500 NON_FINITE_OUTPUT", LOADING)),
    Kind(
        "out of memory", 0.5, _fixed("encode", "soak/embedder:faulty", "[oom]"),
        _one("503 RESOURCE_EXHAUSTED", LOADING),
    ),
)  # fmt: skip
LEAVING = tuple(
    Kind(f"client leaves {how}", 1, _leaves(how), _one(NO_ANSWER)) for how in ("half-way", "at once", "soon")
)
LOOKING = tuple(
    Kind(f"GET {path.removesuffix(MODEL)}", 0.3, _looks(path), _one(OK))
    for path in ("/metrics", "/v1/models", f"/v1/models/{MODEL}", "/health", "/readyz")
)
EVERYTHING = (*ANSWERED, *HURRIED, *WRONG, *FAILING, *LEAVING, *LOOKING)

LEAK = (Kind("leaking", 1, _fixed("encode", LEAKING, "a")), Kind("every output", 1, _every_output))
"""Without a real model: what shows that a soak sees a leak."""
MIXES = {"everything": EVERYTHING, "leak": LEAK}
