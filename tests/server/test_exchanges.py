"""What a request asks of its connection beside ASGI: its body if it is there, to be told of a client that leaves."""

import asyncio
import gc
import time
import weakref
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.datastructures import Headers
from uvicorn.server import ServerState

from sie_core.api import error_response
from sie_core.api.request import PEER, RequestHeaders
from sie_core.serving import exchanges
from sie_core.serving.connections import Connection
from sie_core.serving.turns import Turns

from .test_connections import BOUND_S

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}


class Transport(asyncio.Transport):
    """Keeps what is written, a system call each."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


def connected(app: Any, transport: Transport | None = None, **options: Any) -> tuple[Connection, Transport]:
    """Connect a client to an application."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    refusal = partial(error_response, scope={"path": "/v1/"})
    transport = transport or Transport()
    connection = Connection(config, ServerState(), {}, refusal=refusal, **options)
    connection.connection_made(transport)
    return connection, transport


async def answered(connection: Connection) -> None:
    """Wait until the requests that have come are answered."""
    while connection.tasks:
        await asyncio.wait(connection.tasks, timeout=BOUND_S)
    connection._stop(connection.timeout_keep_alive_task)


async def served(app: Any, packet: bytes) -> Transport:
    """Have an application answer the requests of a packet."""
    connection, transport = connected(app)
    connection.data_received(packet)
    await answered(connection)
    return transport


def request(method: bytes = b"GET", body: bytes = b"", more: bytes = b"", path: bytes = b"/") -> bytes:
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"
    return head % (method, path, more, len(body)) + body


async def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collector() -> None:
    over: list[weakref.ref[object]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        over.append(weakref.ref(receive.__self__))
        scope[PEER].on_leave(lambda: None)
        await send(HEAD)
        await send(BODY)

    gc.disable()
    try:
        connection, _ = connected(app)
        for _ in range(3):
            connection.data_received(request(b"POST"))
            await answered(connection)
        await asyncio.sleep(0)  # the loop lets go of the last task
        assert [each() for each in over] == [None, None, connection.cycle]
        connection.connection_lost(None)
        del connection
        await asyncio.sleep(0)
        assert over[2]() is None
    finally:
        gc.enable()


async def test_head_and_body_of_a_reply_leave_together() -> None:
    async def app(scope, receive, send) -> None:
        await send(HEAD)
        await send(BODY)

    transport = await served(app, request(b"POST") * 2)
    assert [reply.count(b"\r\n\r\nok") for reply in transport.written] == [1, 1]


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
async def test_a_reply_without_a_body_leaves_and_the_next_is_answered(method: bytes) -> None:
    async def app(scope, receive, send) -> None:
        await send({**HEAD, "status": 204, "headers": [(b"content-length", b"0")]})
        await send({**BODY, "body": b""})

    transport = await served(app, request(method, path=b"/livez") * 2)
    assert [reply[:12] for reply in transport.written] == [b"HTTP/1.1 204"] * 2


async def test_a_head_whose_request_fails_leaves_before_the_connection_ends() -> None:
    async def app(scope, receive, send) -> None:
        await send(HEAD)
        raise RuntimeError("no body")

    transport = await served(app, request())
    assert transport.closed
    assert [reply[:12] for reply in transport.written] == [b"HTTP/1.1 200"]


@pytest.mark.parametrize(
    ("packets", "whole"),
    [
        ([request(b"POST", b"body")], b"body"),
        ([request(b"POST", b"body")[:-2], b"dy"], None),
        ([request(b"POST", b"body", b"Expect: 100-continue\r\n")], None),
    ],
)
async def test_a_body_that_has_come_is_taken_and_any_other_is_received(packets, whole) -> None:
    seen: list[tuple[bytes | None, bytes]] = []
    began = asyncio.Event()

    async def app(scope, receive, send) -> None:
        body, received = scope[PEER].whole_body(), b""
        began.set()
        more = body is None
        while more:
            message = await receive()
            received, more = received + message["body"], message["more_body"]
        seen.append((body, received))
        await send(HEAD)
        await send(BODY)

    connection, _ = connected(app)
    connection.data_received(packets[0])
    async with asyncio.timeout(BOUND_S):
        await began.wait()
        for packet in packets[1:]:
            connection.data_received(packet)
        await answered(connection)
    assert seen == [(whole, b"" if whole else b"body")]


async def test_who_has_taken_the_body_receives_next_that_the_client_leaves() -> None:
    received: list[str] = []
    began = asyncio.Event()

    async def app(scope, receive, send) -> None:
        assert scope[PEER].whole_body() == b"body"
        began.set()
        received.append((await receive())["type"])

    connection, _ = connected(app)
    connection.data_received(request(b"POST", b"body"))
    async with asyncio.timeout(BOUND_S):
        await began.wait()
    connection.connection_lost(None)
    await answered(connection)
    assert received == ["http.disconnect"]


async def test_a_request_is_told_once_that_its_client_leaves() -> None:
    told: list[str] = []
    leave = asyncio.Event()

    async def app(scope, receive, send) -> None:
        scope[PEER].on_leave(lambda: (told.append("left"), leave.set()))
        connection.connection_lost(None)
        await leave.wait()
        scope[PEER].on_leave(lambda: told.append("at once"))

    connection, _ = connected(app)
    connection.data_received(request())
    await answered(connection)
    assert told == ["left", "at once"]


class Insisting(Transport):
    """A client that asks the same again as soon as it has its answer."""

    again = b""
    connection: Connection

    def writelines(self, list_of_data: Any) -> None:
        if self.again:
            asyncio.get_running_loop().call_soon(self.connection.data_received, self.again)


@pytest.mark.parametrize(
    ("insisting", "path", "waits"),
    [(b"POST", b"/refused", True), (b"GET", b"/v1/models", True), (b"GET", b"/readyz", False)],
)
async def test_connections_that_look_up_or_are_refused_and_ask_again_hold_up_no_other(
    insisting: bytes, path: bytes, waits: bool
) -> None:
    begun: list[bytes] = []
    over = asyncio.Event()

    async def app(scope, receive, send) -> None:
        asked, method = scope["raw_path"], scope["method"].encode()
        begun.append(method + asked)
        insists = asked == path
        for _ in range(0 if insists else 3):
            await asyncio.sleep(0)  # as a request that changes threads gives the event loop away
        await send({**HEAD, "status": 503 if asked == b"/refused" else 200})
        await send(BODY)
        if not insists:
            over.set()

    shared, crowd = Turns(), []
    for _ in range(200):
        connection, transport = connected(app, Insisting(), turns=shared)
        transport.connection = connection
        transport.again = request(insisting, path=path)
        crowd.append((connection, transport))
        connection.data_received(transport.again)
    async with asyncio.timeout(BOUND_S):
        while len(begun) < 400:  # noqa: ASYNC110
            await asyncio.sleep(0)
        connection, _ = connected(app, turns=shared)
        connection.data_received(request(b"POST"))
        begun.clear()
        await over.wait()
    others = len(begun) - 1
    for _, transport in crowd:
        transport.again = b""
    assert others < 40 if waits else others >= 200
    for each in (*(each for each, _ in crowd), connection):
        each.connection_lost(None)
        await answered(each)


async def test_a_refused_client_that_leaves_while_it_waits_is_not_served(monkeypatch) -> None:
    begun: list[bytes] = []

    async def app(scope, receive, send) -> None:
        begun.append(scope["raw_path"])
        await send({**HEAD, "status": 503})
        await send(BODY)

    shared = Turns()
    clients = [connected(app, turns=shared)[0] for _ in range(6)]
    for client in clients:
        client.data_received(request(b"POST"))
        await answered(client)
    begun.clear()
    for number, client in enumerate(clients):
        client.data_received(request(b"POST", path=b"/%d" % number))
    clients[4].connection_lost(None)
    async with asyncio.timeout(BOUND_S):
        while begun[-1:] != [b"/5"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for client in clients:
            await answered(client)
    assert begun == [b"/0", b"/1", b"/2", b"/3", b"/5"]


def test_connection_and_api_mean_the_same_key() -> None:
    assert exchanges.PEER == PEER


def test_headers_decoded_once_are_those_of_starlette() -> None:
    raw = [(b"accept", b"a"), (b"prefer", b"wait=1"), (b"prefer", b"\xe9"), (b"x-empty", b"")]
    ours, theirs = RequestHeaders(raw), Headers(raw=raw)
    for name in ("accept", "prefer", "x-empty", "absent"):
        assert ours.get(name) == theirs.get(name)
        assert ours.getlist(name) == theirs.getlist(name)
        assert (name in ours) == (name in theirs)
    with pytest.raises(KeyError):
        ours["absent"]


CYCLE: Any = SimpleNamespace(disconnected=False)


def takes(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_one_that_polls_a_long_list_leaves_those_that_were_refused_their_half() -> None:
    turns, begun, over = Turns(), Counter(), asyncio.Event()

    def again(lookup: bool, seconds: float) -> None:
        begun[lookup] += 1
        takes(seconds)
        if begun[True] == 20:
            over.set()
        else:
            turns.begin(CYCLE, partial(again, lookup, seconds), lookup=lookup)

    for _ in range(50):
        turns.begin(CYCLE, partial(again, False, 0.0001))
    turns.begin(CYCLE, partial(again, True, 0.004), lookup=True)
    await asyncio.wait_for(over.wait(), BOUND_S)
    assert begun[False] > 10 * begun[True]


async def test_a_request_that_begins_the_next_one_of_its_connection_takes_no_turn_of_others() -> None:
    turns, within, over = Turns(), [], asyncio.Event()

    def begin(left: int) -> None:
        within.append(left)
        assert len(within) == 1, "one began within another"
        if left:
            turns.begin(CYCLE, partial(begin, left - 1))
        else:
            over.set()
        within.pop()

    turns.begin(CYCLE, partial(begin, 2000))
    await asyncio.wait_for(over.wait(), BOUND_S)
