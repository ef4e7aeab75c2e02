"""A small server that plays the Hugging Face Hub, with failures to order."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlparse

import numpy as np
from safetensors.numpy import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HELD_S = 60.0
LARGE = (".safetensors", ".bin")
"""Endings of files that the Hub lists by their SHA-256."""
TENSORS = save({"weight": np.ones((2, 3), np.float32)})
FILES = {
    "config.json": b'{"model_type": "bert", "architectures": ["BertModel"]}',
    "model.safetensors": TENSORS,
    "tokenizer.json": b"{}",
    "vocab.txt": b"a\nb\n",
    "pytorch_model.bin": b"pickled",
    "onnx/model.onnx": b"graph",
    "README.md": b"# A model",
}


@dataclass
class FakeHub:
    """What the server answers: files by repository, and a failure for every request where one is set."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    failure: tuple[int, dict[str, str]] | None = None
    """Answers every request."""
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answer one request each, first to last, before anything else does."""
    refused: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    """Answers for files by name, in place of their contents."""
    tampered: dict[str, bytes] = field(default_factory=dict)
    """Files that come with other contents than are listed."""
    cut: str | None = None
    """A file whose body ends half way."""
    ranges: bool = True
    """Whether a part of a file may be asked for."""
    parts: list[str] = field(default_factory=list)
    """What was asked for of files: `name bytes=…`, or `name` for all."""
    held: threading.Event | None = None
    """What the contents of large files wait for; they were asked for by then."""
    half: threading.Event | None = None
    """What the second half of each large file waits for."""
    asked: list[str] = field(default_factory=list)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[FakeHub]

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if self.hub.failure is not None or self.hub.failures:
            status, headers = self.hub.failures.pop(0) if self.hub.failures else self.hub.failure or (500, {})
            return self._answer(status, b"{}", headers)
        for repo, files in self.hub.files.items():
            if path in {
                f"/api/models/{repo}",
                f"/api/models/{repo}/revision/main",
                f"/api/models/{repo}/revision/{COMMIT}",
            }:
                return self._json({"id": repo, "sha": COMMIT, "siblings": [_sibling(*each) for each in files.items()]})
            if path.startswith(f"/api/models/{repo}/revision/"):
                return self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            if path == f"/api/models/{repo}/tree/{COMMIT}":
                return self._json([_tree_entry(name, data) for name, data in files.items()])
            prefix = f"/{repo}/resolve/{COMMIT}/"
            if path.startswith(prefix) and path.removeprefix(prefix) in files:
                return self._file(path.removeprefix(prefix), files[path.removeprefix(prefix)])
        return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _file(self, name: str, data: bytes) -> None:
        if name in self.hub.refused and self.command == "GET":
            status, headers = self.hub.refused[name]
            return self._answer(status, b"{}", headers)
        if self.hub.held is not None and self.command == "GET" and name.endswith(".safetensors"):
            self.hub.held.wait(HELD_S)
            self.close_connection = True
            return None  # who asked has gone
        headers = {"ETag": f'"{blob_name(name, data)}"', "X-Repo-Commit": COMMIT}
        data, status = self.hub.tampered.get(name, data), 200
        asked = self.headers.get("Range")
        if self.command == "GET":
            self.hub.parts.append(name if asked is None else f"{name} {asked}")
        if asked is not None and self.hub.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            data, status = data[start:], 206
        paused = self.hub.half if name.endswith(".safetensors") else None
        return self._answer(status, data, headers, paused=paused, sent=len(data) // 2 if name == self.hub.cut else None)

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str],
        sent: int | None = None,
        paused: threading.Event | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET" and paused is not None:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            paused.wait(HELD_S)
            body = body[len(body) // 2 :]
        if self.command == "GET":
            self.wfile.write(body[:sent])
        if sent is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay silent; `FakeHub.asked` records the requests."""


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def blob_name(name: str, data: bytes) -> str:
    """Name a file's blob as the Hub does: large files by SHA-256, the others by git's id."""
    return hashlib.sha256(data).hexdigest() if name.endswith(LARGE) else _git_id(data)


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    entry = {"rfilename": name, "size": len(data), "blobId": _git_id(data)}
    if name.endswith(LARGE):
        lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return {**entry, "blobId": _git_id(b"a pointer"), "lfs": lfs}
    return entry


def _tree_entry(name: str, data: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": name, "size": len(data), "oid": _git_id(data)}
    if name.endswith(LARGE):
        sha256 = hashlib.sha256(data).hexdigest()
        return {**entry, "lfs": {"oid": sha256, "sha256": sha256, "size": len(data), "pointerSize": 130}}
    return entry


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder as those of a repository."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contextmanager
def run_hub(address: str = "127.0.0.1") -> Iterator[FakeHub]:
    """Serve a Hub on a port of this machine that has the repository `org/m`."""
    served = FakeHub(files={"org/m": dict(FILES)})
    handler = type("Handler", (_Handler,), {"hub": served})
    with ThreadingHTTPServer((address, 0), handler) as server:
        served.url = f"http://{address}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        server.shutdown()
        thread.join(10)
