"""What a client cannot do to a server over one connection: each ends in a typed answer, or in the connection's end."""

import asyncio
import contextlib
import json
import re
import socket
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sie_core.api import error_response
from sie_core.serving import connections
from sie_core.serving.bounds import MAX_HEADERS_BYTES, MAX_PIPELINED
from sie_core.serving.connections import Connection

from .test_connections import BOUND_S, connect, exchange

PATH = b"/v1/encode/sie-fake/embedder"
BODY = b'{"items":[{"text":"a"}]}'
HEAD = b"Host: localhost\r\nContent-Length: %d\r\n" % len(BODY)


def error_of(reply: bytes) -> tuple[int, str]:
    return int(reply.split()[1]), json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"]


def statuses(replies: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", replies)]


@pytest.mark.parametrize(
    "request_",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00" + b"\r\n" * 9,
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n" % PATH,
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH,
    ],
)
def test_what_is_no_request_gets_a_typed_400(fake_server: str, request_: bytes) -> None:
    assert error_of(exchange(fake_server, request_)) == (400, "INVALID_INPUT")


@pytest.mark.parametrize("header", [b"X-A: " + b"y" * MAX_HEADERS_BYTES, b"X-A: y\r\n" * (MAX_HEADERS_BYTES // 4)])
def test_headers_beyond_the_limit_are_refused(fake_server: str, header: bytes) -> None:
    request = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (PATH, header.removesuffix(b"\r\n"))
    assert error_of(exchange(fake_server, request)) == (413, "PAYLOAD_TOO_LARGE")


def test_headers_that_never_end_are_cut_off(fake_server: str) -> None:
    header = b"X-A: %s\r\n" % (b"y" * 60_000)
    with connect(fake_server) as connection, pytest.raises(OSError, match=r"reset|Broken pipe"):
        connection.sendall(b"POST %s HTTP/1.1\r\n" % PATH + header * 1_000)


@pytest.mark.parametrize("wish", [b"h2c", b"websocket"])
def test_a_wish_for_another_protocol_is_passed_over_with_its_body_read(fake_server: str, wish: bytes) -> None:
    head = b"Connection: Upgrade, close\r\nUpgrade: %s\r\n" % wish
    reply = exchange(fake_server, b"POST %s HTTP/1.1\r\n%s%s\r\n%s" % (PATH, HEAD, head, BODY))
    assert reply.startswith(b"HTTP/1.1 200")


WISH = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
CLOSED = b"POST %s HTTP/1.1\r\nConnection: close\r\n%s\r\n%s" % (PATH, HEAD, BODY)


@pytest.mark.parametrize(
    "request_",
    [
        b"POST %s HTTP/1.1\r\nUPGRADE: h2c\r\nCONNECTION: upgrade\r\n%s\r\n%s" % (PATH, HEAD, BODY),
        b"POST %s HTTP/1.1\r\n%sConnection: keep-alive, uPgrade\r\nupGRADE:h2c\r\n\r\n%s" % (PATH, HEAD, BODY),
        b"\r\nPOST %s HTTP/1.1\r\n%s%s\r\n%s" % (PATH, WISH, HEAD, BODY),
        b"POST %s HTTP/1.1\r\n%s\r\n%s" % (PATH, HEAD, BODY)
        + b"POST %s HTTP/1.1\r\n%s%s\r\n%s" % (PATH, WISH, HEAD, BODY),
        b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        % (PATH, WISH, len(BODY), BODY),
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % WISH,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["capitals", "mixed", "line end first", "second in a pipeline", "chunked", "without a body", "websocket"],
)
@pytest.mark.parametrize("segments", ["one", "two", "bytes"])
def test_a_wish_is_passed_over_in_every_spelling_and_segmentation(fake_server: str, request_, segments) -> None:
    whole = request_ + CLOSED
    size = {"one": len(whole), "two": whole.lower().index(b"upgrade:") + 3, "bytes": 1}[segments]
    with connect(fake_server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(whole), size):
            connection.sendall(whole[start : start + size])
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert reply.count(b"HTTP/1.1 200") == whole.count(b" HTTP/1.1\r\n"), reply[-300:]


async def test_garbage_behind_pipelined_requests_is_told_after_their_answers(serve, caplog) -> None:
    caplog.set_level("WARNING", logger="uvicorn")  # commands that ran in this process may have silenced it
    go_on, many = asyncio.Event(), 2

    async def held(scope, receive, send) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    reader, writer = await asyncio.open_connection(*await serve(held))
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * many + b"\x00garbage\r\n\r\n")
    await writer.drain()
    while not any("Invalid HTTP request" in record.message for record in caplog.records):  # noqa: ASYNC110
        await asyncio.sleep(0)
    go_on.set()
    reply = await asyncio.wait_for(reader.read(), BOUND_S)
    assert statuses(reply) == [200] * many + [400]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    writer.close()


async def test_a_client_that_goes_is_told_to_the_request_at_work_though_another_came_behind_it(serve) -> None:
    left, began = asyncio.Event(), asyncio.Event()

    async def waiting(scope, receive, send) -> None:
        began.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    _, writer = await asyncio.open_connection(*await serve(waiting))
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
    async with asyncio.timeout(BOUND_S):
        await began.wait()
        writer.close()
        await left.wait()


async def test_a_client_that_goes_is_told_to_the_request_at_work_though_its_body_was_large(serve) -> None:
    left, first_part, at_work = asyncio.Event(), asyncio.Event(), asyncio.Event()
    size, last = 2**20, 2**18

    async def working(scope, receive, send) -> None:
        received, more = 0, True
        while more:
            message = await receive()
            received, more = received + len(message["body"]), message["more_body"]
            if received == size - last:
                first_part.set()
        at_work.set()
        if (await receive())["type"] == "http.disconnect":
            left.set()

    _, writer = await asyncio.open_connection(*await serve(working))
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size + b"w" * (size - last))
    async with asyncio.timeout(BOUND_S):
        await first_part.wait()
        writer.write(b"w" * last)  # more than the server takes before it stops reading
        await at_work.wait()
        writer.close()
        await left.wait()


async def test_a_body_that_cannot_be_read_ends_its_own_request_alone(serve) -> None:
    async def echo(scope, receive, send) -> None:
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        if message["type"] == "http.request":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    reader, writer = await asyncio.open_connection(*await serve(echo))
    chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + chunked)
    reply = await asyncio.wait_for(reader.read(), BOUND_S)
    assert statuses(reply) == [200, 400]
    writer.close()


def test_many_pipelined_requests_are_all_answered(fake_server: str) -> None:
    request = b"POST %s HTTP/1.1\r\n%s\r\n%s" % (PATH, HEAD, BODY)
    last = request.replace(b"Host", b"Connection: close\r\nHost")
    many = 10 * MAX_PIPELINED
    assert exchange(fake_server, request * many + last).count(b"HTTP/1.1 200") == many + 1


@pytest.fixture
def state() -> ServerState:
    """Give what the server knows of its connections."""
    return ServerState()


@pytest.fixture
async def serve(state):
    """Serve an ASGI application on a real socket; gives its address."""
    servers = []

    async def begin(app: Any) -> tuple[str, int]:
        config = uvicorn.Config(app, log_config=None, ws="none", lifespan="off")
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(Connection, config, state, {}, refusal=partial(error_response, scope={"path": "/v1/"})),
            "127.0.0.1",
            0,
        )
        servers.append(server)
        return server.sockets[0].getsockname()[:2]

    yield begin
    for server in servers:
        server.close()


async def nothing(scope, receive, send) -> None:
    raise AssertionError("no request was complete")


async def test_headers_that_take_too_long_get_a_typed_504(serve, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MAX_HEADERS_S", 0.05)
    reader, writer = await asyncio.open_connection(*await serve(nothing))
    writer.write(b"POST /v1/enc")
    assert error_of(await asyncio.wait_for(reader.read(), BOUND_S)) == (504, "DEADLINE_EXCEEDED")
    writer.close()


@pytest.mark.parametrize(
    ("request_", "more"),
    [
        (b"", b"\r\n"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n", b"x"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n", b"x"),
    ],
)
async def test_bytes_that_begin_no_request_leave_an_idle_connection_to_be_closed(serve, state, request_, more) -> None:
    async def refusing(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    reader, writer = await asyncio.open_connection(*await serve(refusing))
    async with asyncio.timeout(BOUND_S):
        if request_:
            writer.write(request_)
            await reader.readuntil(b"\r\n\r\n")
        while not state.connections:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0)
        (connection,) = state.connections
        connection.timeout_keep_alive = 0.05  # for the timers that are set from now on
        writer.write(more)
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_left(serve, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MAX_STALL_S", 0.05)
    left = asyncio.Event()

    async def answering(scope, receive, send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % 10**8)]})
        await send({"type": "http.response.body", "body": b"x" * 10**7, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    with socket.create_connection(await serve(answering), timeout=BOUND_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(left.wait(), BOUND_S)


async def test_reading_stops_while_many_requests_wait_for_an_earlier_one(serve) -> None:
    go_on, made = asyncio.Event(), []

    async def held(scope, receive, send) -> None:
        made.append(scope)
        await receive()
        watching = asyncio.create_task(receive())
        await go_on.wait()
        watching.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    reader, writer = await asyncio.open_connection(*await serve(held))
    many = 50 * MAX_PIPELINED
    writer.write((b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: %s\r\n\r\n" % (b"y" * 30_000)) * many)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.3)
    waiting = writer.transport.get_write_buffer_size()
    assert len(made) == 1
    assert waiting > many * 30_000 / 3
    go_on.set()
    for _ in range(many):
        assert b"200" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
    writer.close()


class _Full(bytearray):
    """A body for which there is no memory."""

    def __iadd__(self, more: Any) -> "_Full":
        raise MemoryError


async def test_a_body_for_which_there_is_no_memory_gets_a_typed_503_while_its_client_still_sends(serve, state) -> None:
    async def starved(scope, receive, send) -> None:
        (connection,) = state.connections
        connection.cycle.body = _Full()
        began.set()
        assert (await receive())["type"] == "http.disconnect"

    began, size = asyncio.Event(), 2**20
    reader, writer = await asyncio.open_connection(*await serve(starved))
    async with asyncio.timeout(BOUND_S):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        await began.wait()
        writer.write(b"x" * (size // 2))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * (size // 2))
        await writer.drain()
        assert error_of(head + await reader.read()) == (503, "RESOURCE_EXHAUSTED")
    writer.close()


async def test_a_refused_client_that_stays_is_left(serve, state, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD_S", 0.05)
    reader, writer = await asyncio.open_connection(*await serve(nothing))
    async with asyncio.timeout(BOUND_S):
        writer.write(b"no request\r\n\r\n")
        assert error_of(await reader.read()) == (400, "INVALID_INPUT")
        while state.connections:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0)
    writer.close()
