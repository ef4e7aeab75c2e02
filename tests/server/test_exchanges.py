"""Requests and replies of one connection, over a transport of the test; the lowest uvicorn of the pin runs them too."""

import ast
import asyncio
import gc
import inspect
import re
import weakref
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sie_core.api import error_response
from sie_core.serving import connections
from sie_core.serving.connections import Connection

from .test_connections import BOUND_S

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

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


def connected(app: Any) -> tuple[Connection, Transport]:
    """Connect a client to an application."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    refusal = partial(error_response, scope={"path": "/v1/"})
    transport = Transport()
    connection = Connection(config, ServerState(), {}, refusal=refusal)
    transport.set_protocol(connection)
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
        await send(HEAD)
        await send(BODY)

    gc.disable()
    try:
        connection, transport = connected(app)
        for _ in range(3):
            connection.data_received(request(b"POST"))
            await answered(connection)
        await asyncio.sleep(0)  # the loop lets go of the last task
        assert [each() for each in over] == [None, None, connection.cycle]
        connection.connection_lost(None)
        transport.set_protocol(asyncio.Protocol())
        del connection
        await asyncio.sleep(0)
        assert over[2]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
async def test_a_reply_without_a_body_leaves_and_the_next_is_answered(method: bytes) -> None:
    async def app(scope, receive, send) -> None:
        await send({**HEAD, "status": 204, "headers": [(b"content-length", b"0")]})
        await send({**BODY, "body": b""})

    transport = await served(app, request(method, path=b"/livez") * 2)
    assert [reply[:12] for reply in transport.written if reply] == [b"HTTP/1.1 204"] * 2


async def test_a_head_whose_request_fails_leaves_before_the_connection_ends() -> None:
    async def app(scope, receive, send) -> None:
        await send(HEAD)
        raise RuntimeError("no body")

    transport = await served(app, request())
    assert transport.closed
    assert [reply[:12] for reply in transport.written] == [b"HTTP/1.1 200"]


async def test_garbage_behind_a_request_is_refused_after_its_answer() -> None:
    async def app(scope, receive, send) -> None:
        await send(HEAD)
        await send(BODY)

    transport = await served(app, request() * 2 + b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", b"".join(transport.written)) == [b"200", b"200", b"400"]


async def test_who_has_the_body_receives_next_that_the_client_leaves() -> None:
    received: list[str] = []
    began = asyncio.Event()

    async def app(scope, receive, send) -> None:
        assert (await receive())["body"] == b"body"
        began.set()
        received.append((await receive())["type"])

    connection, _ = connected(app)
    for _ in range(2):  # the second waits for the first, and is never begun
        connection.data_received(request(b"POST", b"body"))
    async with asyncio.timeout(BOUND_S):
        await began.wait()
    connection.connection_lost(None)
    await answered(connection)
    assert received == ["http.disconnect"]


async def test_connections_use_public_names_of_uvicorn_alone() -> None:
    """And their own names are none of its: a release that adds one would change what it means."""

    async def app(scope, receive, send) -> None:
        await send(HEAD)
        await send(BODY)

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    theirs = HttpToolsProtocol(config, ServerState(), {})
    known = {*dir(theirs), *dir(FlowControl(Transport()))}
    tree = ast.parse(inspect.getsource(connections))
    used = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    defined = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    private = {name for name in used | defined if name.startswith("_") and not name.startswith("__")}
    assert not private & known
    imported = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert not [each.names[0].name for each in imported for name in each.names if name.name.startswith("_")]
    overridden = {name for name in defined if hasattr(HttpToolsProtocol, name) or hasattr(asyncio.Protocol, name)}
    assert overridden == {
        *("__init__", "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
        *("on_message_begin", "on_headers_complete", "on_message_complete", "on_response_complete"),
        *("handle_websocket_upgrade", "timeout_keep_alive_handler", "send_400_response"),
    }
