"""A small config service for the tests of its followers: an HTTP server over a registry in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sie_bundle.bundles.registry import Registry
from sie_cluster.configs.delta import write_deltas
from sie_cluster.messages.export import write_export

from sie_core.contracts import QueueTransport
from tests.cluster.configs.registries import BUNDLES, registry_of, text_of

TOKEN = "read-token"


class SmallService:
    """It, with what it was asked. `None` as a text removes a model."""

    def __init__(self, texts: dict[str, str], epoch: int = 5) -> None:
        self.texts, self.epoch, self.bundles = dict(texts), epoch, BUNDLES
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        """What is answered instead, by path."""
        self.port = 0

    @property
    def registry(self) -> Registry:
        return registry_of(self.texts, self.epoch, self.bundles)

    @property
    def exports(self) -> int:
        """How often the export was fetched."""
        return self.asked.count("/v1/configs/export")

    def export(self) -> bytes:
        told = write_export(self.registry, dict.fromkeys(self.texts, "api"), "2030-01-01T00:00:00Z")
        return json.dumps(told).encode()

    def change(self, id_: str, text: str | None) -> list[tuple[str, bytes]]:
        """Make a change; return what is to be broadcast."""
        if text is None:
            del self.texts[id_]
        else:
            self.texts[id_] = text
        self.epoch += 1
        bundles = ["other"] if id_.startswith("other/") else ["default", "other"]
        return write_deltas(self.registry, id_, producer="sie-config-1", affected_bundles=bundles)

    async def tell(self, transport: QueueTransport, id_: str, text: str | None) -> None:
        """Make a change and broadcast it."""
        for subject, payload in self.change(id_, text):
            await transport.send(subject, payload)

    def answer(self, path: str, token: str | None) -> tuple[int, bytes, dict[str, str]]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if token != f"Bearer {TOKEN}":
            return 403, b"{}", {}
        if path == "/v1/configs/export":
            return 200, self.export(), {}
        registry = self.registry
        told: dict[str, Any] = {
            "epoch": self.epoch,
            "bundles_hash": registry.bundles_hash,
            "bundle_config_hashes_hash": registry.config_hashes_hash,
        }
        return 200, json.dumps(told).encode(), {}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve until the end of the block, at the same port each time; gives the URL."""
        server = _Server(("127.0.0.1", self.port), _Handler)
        server.service = self
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    service: SmallService


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status, body, headers = self.server.service.answer(self.path, self.headers.get("Authorization"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def some_models() -> dict[str, str]:
    """Two models, of which the second bundle alone serves the second."""
    return {"org/a": text_of("org/a"), "other/b": text_of("other/b", pool="L4")}
