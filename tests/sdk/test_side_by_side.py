"""What the shells do at once: requests of one call of many items, and long work beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_sdk import FailedItem, SIEAsyncClient, SIEClient, wire
from sie_sdk._calls.exchange import Offload, Operation
from sie_sdk.many import EncodeMany

from tests.sdk.scripted import Answer, Scripted, ok, refused, run_async, run_sync


def encode_many(kind: str, url: str, items: Any, **settings: Any) -> Any:
    """Run `encode_many` of either shell."""
    if kind == "sync":
        with SIEClient(url) as client:
            return client.encode_many("org/m", items, **settings)

    async def main() -> Any:
        async with SIEAsyncClient(url) as client:
            return await client.encode_many("org/m", items, **settings)

    return asyncio.run(asyncio.wait_for(main(), 60))


def together(parallel: int) -> tuple[Callable[[bytes], Answer], list[int]]:
    """Return an answer that waits until so many requests are in flight, and how many were each time."""
    arrived, lock, in_flight, seen = threading.Barrier(parallel), threading.Lock(), 0, []

    def answer(body: bytes) -> Answer:
        nonlocal in_flight
        with lock:
            in_flight += 1
            seen.append(in_flight)
        arrived.wait(30)
        with lock:
            in_flight -= 1
        asked: Any = wire.unpack(body)
        place = float(asked["items"][0]["text"])
        content = wire.pack({"model": "m", "items": [{"dense": {"dtype": "float32", "values": np.float32([place])}}]})
        return 200, {"Content-Type": "application/msgpack"}, content

    return answer, seen


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_as_many_requests_as_allowed_are_in_flight_and_no_more(server: Scripted, kind: str):
    answer, seen = together(3)
    server.script = [answer] * 9
    many = encode_many(kind, server.url, map(str, range(9)), batch_size=1, parallel=3, progress=False)
    assert many.matrix()[:, 0].tolist() == list(range(9))
    assert max(seen) == 3


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_items_that_cannot_be_iterated_end_the_call_and_the_waits_of_its_requests(server: Scripted, kind: str):
    busy = refused(503, "QUEUE_FULL", **{"Retry-After": "600"})

    def items() -> Iterator[str]:
        yield "x"
        yield "y"
        raise LookupError("the rest is lost")

    server.script = [busy] * 2
    with pytest.raises(LookupError, match="the rest is lost"):
        encode_many(kind, server.url, items(), batch_size=1, parallel=3, progress=False)
    assert len(server.requests) <= 2


@pytest.mark.parametrize("play", [run_sync, run_async])
@pytest.mark.parametrize("name", ["encode_many", "encode_iter"])
def test_items_that_are_each_refused_by_name_at_first_end_nothing(server: Scripted, name: str, play: Any):
    def answer(body: bytes) -> Answer:
        bad = wire.unpack(body)["items"][0]["text"] == "bad"
        return refused(400, "INVALID_INPUT", param="items[0].text") if bad else ok()

    server.script = [answer] * 24
    said = {"batch_size": 1, "parallel": 4, "progress": False}
    got = play(server.url, name, ("org/m", ["bad"] * 4 + ["ok"] * 20), said, {})
    if name == "encode_many":
        kind, told = got
        assert kind is EncodeMany
        assert [each["place"] for _, each in told["failed"]] == [0, 1, 2, 3]
        assert [each is None for each in told["results"]] == [True] * 4 + [False] * 20
    else:
        assert [each[0] is FailedItem if isinstance(each, tuple) else "failed" for each in got[:4]] == [True] * 4
        assert ["dense" in each for each in got[4:]] == [True] * 20


def test_a_loop_that_is_left_leaves_no_task_behind(server: Scripted):
    def answer(body: bytes) -> Any:
        return ok() if wire.unpack(body)["items"][0]["text"] == "0" else "hold"

    server.script = [answer] * 9

    async def main() -> set[asyncio.Task[Any]]:
        async with SIEAsyncClient(server.url) as client:
            before = asyncio.all_tasks()
            stream = client.encode_iter("org/m", map(str, range(9)), batch_size=1, parallel=3, progress=False)
            await anext(stream)
            await stream.aclose()
            return asyncio.all_tasks() - before

    assert asyncio.run(asyncio.wait_for(main(), 60)) == set()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_no_more_items_are_held_than_twice_those_of_the_requests_in_flight(server: Scripted, kind: str):
    server.script = [ok(4)] * 25
    drawn, ahead = 0, []

    def items() -> Iterator[str]:
        nonlocal drawn
        for place in range(100):
            drawn += 1
            yield str(place)

    def stream(client: Any) -> Any:
        return client.encode_iter("org/m", items(), batch_size=4, parallel=2, progress=False)

    if kind == "sync":
        with SIEClient(server.url) as client:
            ahead = [drawn - place for place, _ in enumerate(stream(client))]
    else:

        async def main() -> list[int]:
            async with SIEAsyncClient(server.url) as client:
                places = iter(range(100))
                return [drawn - next(places) async for _ in stream(client)]

        ahead = asyncio.run(asyncio.wait_for(main(), 60))
    assert len(ahead) == 100
    assert max(ahead) == 2 * 2 * 4


def test_a_bar_is_opened_when_the_results_are_asked_for(server: Scripted, capsys: pytest.CaptureFixture[str]):
    server.script = [ok()]
    with SIEClient(server.url) as client:
        stream = client.encode_iter("org/m", ["x"], progress=True)
        assert capsys.readouterr().err == ""
        assert len(list(stream)) == 1
        assert "1/1" in capsys.readouterr().err


def test_files_are_read_beside_the_event_loop(server: Scripted, tmp_path: Path):
    (tmp_path / "clip").write_bytes(b"x")
    threads = []

    class Named:
        def __fspath__(self) -> str:
            threads.append(threading.get_ident())
            return str(tmp_path / "clip")

    async def main() -> int:
        async with SIEAsyncClient(server.url) as client:
            await client.encode("org/m", {"document": Named()})
            return threading.get_ident()

    server.script = [ok()]
    loop = asyncio.run(main())
    assert threads
    assert loop not in threads


def test_what_takes_long_runs_on_a_thread_of_the_asynchronous_shell_alone():
    def operation() -> Operation[list[int]]:
        seen = [threading.get_ident()]
        yield Offload()
        seen.append(threading.get_ident())
        return seen

    async def main() -> list[int]:
        async with SIEAsyncClient("http://server") as client:
            return await client._run(operation())

    before, beside = asyncio.run(main())
    assert before == threading.get_ident() != beside
    with SIEClient("http://server") as client:
        assert client._run(operation()) == [threading.get_ident()] * 2


@pytest.mark.parametrize(
    ("items", "large_answer", "offloads"),
    [
        ("text", False, 0),
        (["x" * 1000] * 100, False, 0),
        (["x" * 1000] * 300, False, 1),
        ({"text": "x" * 300_000}, False, 1),
        ({"document": b"x"}, False, 1),
        ("text", True, 1),
    ],
)
def test_only_what_takes_long_leaves_the_event_loop(rehearsal, items, large_answer, offloads):
    count = len(items) if isinstance(items, list) else 1
    more = {"padding": b"x" * 300_000} if large_answer else {}
    rehearsal.encode(rehearsal.vectors(count, **more), items=items)
    assert rehearsal.offloads == offloads
