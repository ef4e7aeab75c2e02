"""A client without I/O: its actions are answered by a script, its clock moves only when it sleeps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sie_sdk import wire
from sie_sdk._calls.exchange import Offload, Operation, Outcome, Response, Send, Sleep
from sie_sdk._calls.protocol import Protocol
from sie_sdk._requests.writer import Writer

from tests.sdk.scripted import Scripted, scripted_server

NOW = 1_700_000_000.0


class Luck(random.Random):
    """A source whose `random()` is fixed: 0 takes the whole of a jittered pause, 1 would take the shortest."""

    value = 0.0

    def random(self) -> float:
        return self.value


@dataclass
class Rehearsal:
    """Drives calls through scripted outcomes, the last of which repeats, and records what they did."""

    now: float = 1000.0
    answer_s: float = 0.0
    """How long an answer takes."""
    sends: list[Send] = field(default_factory=list)
    sleeps: list[float] = field(default_factory=list)
    offloads: int = 0
    luck: Luck = field(default_factory=Luck)
    url: str = "http://server"

    def protocol(self, *, api_key: str | None = None, wire_format: Any = "msgpack", **settings: Any) -> Protocol:
        writer = Writer(self.url, api_key, wire_format)
        return Protocol(writer, **settings, clock=lambda: self.now, wall_clock=lambda: NOW, rng=self.luck)

    def encode(self, *outcomes: Outcome, items: Any = "text", client: Any = None, **call: Any) -> Any:
        return self.play(self.protocol(**(client or {})).encode("org/m", items, call), outcomes)

    def score(self, *outcomes: Outcome, items: Any = ("a", "b"), client: Any = None, **call: Any) -> Any:
        return self.play(self.protocol(**(client or {})).score("org/m", "query", list(items), call), outcomes)

    def extract(self, *outcomes: Outcome, items: Any = "text", client: Any = None, **call: Any) -> Any:
        return self.play(self.protocol(**(client or {})).extract("org/m", items, call), outcomes)

    def play(self, operation: Operation[Any], outcomes: Sequence[Outcome]) -> Any:
        left = list(outcomes)
        answer: Outcome = None
        for _ in range(10_000):
            try:
                action = operation.send(answer)
            except StopIteration as done:
                return done.value
            answer = None
            if isinstance(action, Offload):
                self.offloads += 1
            elif isinstance(action, Sleep):
                assert action.seconds >= 0
                self.sleeps.append(action.seconds)
                self.now += action.seconds
            else:
                self.sends.append(action)
                self.now += self.answer_s
                answer = left.pop(0) if len(left) > 1 else left[0]
        raise AssertionError("the call never ends")

    def sent(self) -> Any:
        """The body last sent."""
        send = self.sends[-1]
        assert send.body is not None
        return json.loads(send.body) if "json" in send.headers["Content-Type"] else wire.unpack(send.body)

    @staticmethod
    def error(
        status: int, code: str | None = None, *, retry_after: object = None, in_header: str | None = None, **extra: Any
    ) -> Response:
        headers = {"content-type": "application/json"}
        if retry_after is not None:
            headers["retry-after"] = str(retry_after)
        if in_header:
            headers["x-sie-error-code"] = in_header
        body = {"message": "the reason"} | ({"code": code} if code else {}) | extra
        return Response(status, headers, json.dumps({"error": body}).encode())

    @staticmethod
    def vectors(count: int = 1, headers: dict[str, str] | None = None, **body: Any) -> Response:
        item = {"dense": {"dims": 3, "dtype": "float32", "values": np.array([1, 2, 3], np.float32)}}
        content = wire.pack({"model": "org/m", "items": [item] * count} | body)
        return Response(200, {"content-type": wire.MEDIA_TYPE, **(headers or {})}, content)


def answer(body: Any, headers: dict[str, str] | None = None) -> Response:
    """A good answer in msgpack."""
    return Response(200, {"content-type": wire.MEDIA_TYPE, **(headers or {})}, wire.pack(body))


@pytest.fixture
def rehearsal():
    return Rehearsal()


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_server() as scripted:
        yield scripted
