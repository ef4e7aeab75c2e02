"""A local server that answers by a script, and the two shells run against it, their outcomes made comparable."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from sie_sdk import SIEAsyncClient, SIEClient, SIEConnectionError, wire

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Scripted:
    """A server that gives the answers of its script in turn and records what was asked, and over how many sockets."""

    url: str = ""
    script: list[Answer | str | Callable[[bytes], Answer]] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    taken: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Counts the requests that arrived: one whose client soon gives up may arrive after that."""
    release: threading.Event = field(default_factory=threading.Event)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items() if name.lower() != "host"}
        self.requests.append((handler.command, handler.path, headers, body))
        self.connections.add(handler.client_address)
        step = self.script.pop(0)
        self.taken.release()
        if step == "hang up":
            handler.close_connection = True
            return
        if callable(step):
            step = step(body)
        if step == "hold":
            self.release.wait(30)
            handler.close_connection = True
            return
        status, headers, body = step
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def scripted_server() -> Iterator[Scripted]:
    """Serve a script on a port of this machine."""
    scripted = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        do_GET = do_POST = do_DELETE = lambda handler: scripted.answer(handler)  # noqa: N815 - the base class's names

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        scripted.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield scripted
        scripted.release.set()
        http.shutdown()
        thread.join(10)


def ok(count: int = 1, **body: Any) -> tuple[int, dict[str, str], bytes]:
    item = {"dense": {"dims": 2, "dtype": "float32", "values": np.array([1, 2], np.float32)}}
    content = wire.pack({"model": "m", "items": [item] * count} | body)
    return 200, {"Content-Type": "application/msgpack", "X-Total-Time": "1.50", "X-SIE-Request-ID": "r"}, content


def refused(status: int, code: str, *, param: str = "items[0]", **headers: str) -> tuple[int, dict[str, str], bytes]:
    content = json.dumps({"error": {"code": code, "message": "the reason", "param": param}}).encode()
    return status, {"Content-Type": "application/json", **headers}, content


def as_json(body: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def ranked(*places: int) -> Answer:
    """Scores of documents called by their places, as `score_many` calls them."""
    entries = [{"item_id": str(place), "score": 1.0 + place, "rank": rank} for rank, place in enumerate(places)]
    return as_json({"model": "m", "scores": entries})


def plain(value: Any) -> Any:
    """What can be compared: arrays become their dtype and numbers, an error its type and facts."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if dataclasses.is_dataclass(value):
        return type(value), plain({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, SIEConnectionError):
        return type(value)
    if isinstance(value, Exception):
        return type(value), str(value), plain(vars(value))
    return value


def run_sync(url: str, name: str, arguments: tuple[Any, ...], call: dict[str, Any], client: dict[str, Any]) -> Any:
    with SIEClient(url, **client) as sie:
        try:
            answer = getattr(sie, name)(*arguments, **call)
            return plain(list(answer) if isinstance(answer, Generator) else answer)
        except Exception as error:
            return plain(error)


def run_async(url: str, name: str, arguments: tuple[Any, ...], call: dict[str, Any], client: dict[str, Any]) -> Any:
    async def main() -> Any:
        async with SIEAsyncClient(url, **client) as sie:
            try:
                answer = getattr(sie, name)(*arguments, **call)
                if isinstance(answer, AsyncGenerator):
                    return plain([each async for each in answer])
                return plain(await answer)
            except Exception as error:
                return plain(error)

    return asyncio.run(main())
