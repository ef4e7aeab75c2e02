"""Stands between a client and an HTTP server: passes requests on, fails them, cuts answers, or is gone."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit


@dataclass
class Faults:
    """What the proxy does; may be changed at any time."""

    upstream: str
    url: str = ""
    every_other_fails: bool = False
    """Every second request is answered 503, or its connection broken, in turn."""
    cut: bool = False
    """Every answer of more than a kilobyte breaks off in the middle."""
    cut_firsts: bool = False
    """The first such answer of each path breaks off."""
    unsigned: bool = False
    """Requests are passed on without their signatures."""
    lost_answers: int = 0
    """So many requests that write are served, and their connections broken in place of an answer."""
    gone: bool = False
    """Connections are closed before anything is answered."""
    asked: list[str] = field(default_factory=list)
    failed: int = 0
    broken_off: list[str] = field(default_factory=list)
    """The paths whose answers were cut."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self) -> str | None:
        """Decide what becomes of the next request."""
        with self.lock:
            if self.gone:
                return "break"
            if self.every_other_fails and len(self.asked) % 2 == 1:
                self.failed += 1
                return "503" if self.failed % 2 else "break"
            return None

    def loses_answer(self) -> bool:
        """Decide whether the answer to a request that wrote is lost."""
        with self.lock:
            lost = self.lost_answers > 0
            self.lost_answers -= lost
            return lost

    def cuts(self, path: str, size: int) -> bool:
        """Decide whether an answer breaks off."""
        with self.lock:
            cut = size > 1024 and (self.cut or (self.cut_firsts and path not in self.broken_off))
            if cut:
                self.broken_off.append(path)
            return cut


class _Handler(BaseHTTPRequestHandler):
    faults: ClassVar[Faults]
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.faults.lock:
            self.faults.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        fault = self.faults.fault()
        if fault == "break":
            self.close_connection = True
        elif fault == "503":
            self._answer(503, {}, b"")
        else:
            self._forward(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - http.server's names

    def _forward(self, body: bytes) -> None:
        upstream = urlsplit(self.faults.upstream)
        assert upstream.hostname is not None
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if self.faults.unsigned and name.lower() == "authorization":
                    continue
                connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            headers = {name.lower(): value for name, value in reply.getheaders()}
            content = reply.read()
            if self.command == "PUT" and self.faults.loses_answer():
                self.close_connection = True
            else:
                self._answer(reply.status, headers, content)
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        size = headers.get("content-length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", size)
        self.end_headers()
        cut = self.faults.cuts(self.path, len(body))
        with contextlib.suppress(ConnectionError):  # the client may have given up
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay silent; `Faults.asked` records the requests."""


@contextmanager
def run_proxy(upstream: str) -> Iterator[Faults]:
    """Stand before `upstream` until the block ends."""
    faults = Faults(upstream)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"faults": faults})) as server:
        server.daemon_threads = True
        faults.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield faults
        finally:
            server.shutdown()
            thread.join(10)
