"""How many Python calls of the core one short text takes on an idle server, from its first byte to after its reply.

Counted is every `call` event of `sys.setprofile` with code of `sie_core/`, on all threads: of functions, lambdas,
generator expressions and, before Python 3.12, comprehensions, and each time that a generator or coroutine is resumed.
With `-s` pytest shows them by room: the folder of the core that they are in.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sie_core
from sie_core.api import SOCKETS, Browsers, allowed_hosts, create_app, error_response
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.settings import Settings

CORE = f"{Path(sie_core.__file__).parent}/"
MODEL = "sie-fake/dense"
WARM = 20
TRACED = 5
MOST_TOLD = 20
MOST_CALLS = 300
SETTLED_S = 0.05
BOUND_S = 30.0


class Tracer:
    """Counts calls of the core while it is on, on every thread that starts after it was installed."""

    def __init__(self) -> None:
        self.on = False
        self.calls: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(CORE):
            self.calls[frame.f_code] += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self)
        try:
            yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]


@contextmanager
def serving() -> Iterator[int]:
    """Run the server, as `sie serve` does, on a thread; give its port."""
    settings = Settings(preload_models=(MODEL,), hf_fallback=False)
    engine = build_engine(settings, discover(settings, BUILTINS), gated=True)
    browsers = Browsers(settings.cors_origins, allowed_hosts(settings, "127.0.0.1"))
    app = create_app(engine, settings, registry=engine.metrics.registry, browsers=browsers)
    server = HttpServer(app, partial(error_response, scope={"path": "/v1/"}), SOCKETS)
    ready = threading.Event()

    async def start() -> None:
        await engine.start()
        ready.set()

    async def serve() -> None:
        try:
            await server.serve_on(listener, start)
        finally:
            await engine.close()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=lambda: run_loop(serve()), daemon=True)
        thread.start()
        assert ready.wait(BOUND_S)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(BOUND_S)


def ask(connection: socket.socket) -> None:
    """Send the request at once, so that its head and body come together."""
    body = json.dumps({"model": MODEL, "input": "a small model"}).encode()
    head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    assert reply.status == 200, reply.read()
    assert reply.read()


def traced() -> Counter[CodeType]:
    """Count the calls of one request; of several the fewest, as what the server does beside requests adds to some."""
    tracer, counted = Tracer(), []
    with tracer.installed(), serving() as port, socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(WARM):
            ask(connection)
        for _ in range(TRACED):
            time.sleep(SETTLED_S)
            tracer.calls, tracer.on = Counter(), True
            ask(connection)
            time.sleep(SETTLED_S)  # what follows the reply counts too
            tracer.on = False
            counted.append(tracer.calls)
    return min(counted, key=Counter.total)


def told(calls: Counter[CodeType]) -> str:
    """Write the calls by room, and the functions called most."""
    rooms: Counter[str] = Counter()
    for code, times in calls.items():
        rooms[code.co_filename.removeprefix(CORE).partition("/")[0]] += times
    lines = [f"{calls.total()} calls", *(f"{times:5} {room}" for room, times in rooms.most_common()), "most called:"]
    for code, times in calls.most_common(MOST_TOLD):
        lines.append(f"{times:5} {code.co_filename.removeprefix(CORE)}:{code.co_firstlineno} {code.co_qualname}")
    return "\n".join(lines)


def test_one_text_on_an_idle_server_takes_few_python_calls() -> None:
    calls = traced()
    print(told(calls))
    assert calls.total() <= MOST_CALLS
