"""Wheels made by hand, and an index of them that tells upload times as a registry does."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

OURS = {"sie-sdk": [], "sie-core": ["sie-sdk>=1"], "sie-text": ["sie-core>=1"]}


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    *,
    plugins: Mapping[str, str] | None = None,
    modules: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel whose module says its version; the same arguments give the same bytes."""
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    files = {
        f"{plain}/__init__.py": f'VERSION = "{version}"\n',
        **(modules or {}),
        f"{info}/METADATA": "".join(
            [
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
                *(f"Requires-Dist: {each}\n" for each in requires),
            ]
        ),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if plugins:
        files[f"{info}/entry_points.txt"] = "[sie]\n" + "".join(f"{key} = {value}\n" for key, value in plugins.items())
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{plain}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return file


def make_ours(folder: Path) -> Path:
    """Write wheels of the core, the SDK, a plugin `text` and a plugin `pytorch` that wants a new enough library."""
    for name, requires in OURS.items():
        make_wheel(folder, name, "1.0.0", requires, plugins={"text": "sie_text"} if name == "sie-text" else None)
    wants = ["sie-text>=1", "numbers>=5.23,<6", 'weights==0.1; extra == "minilm"']
    make_wheel(folder, "sie-pytorch", "1.0.0", wants, plugins={"pytorch": "sie_pytorch"})
    return folder


@contextmanager
def serve_index(wheels: Mapping[Path, str]) -> Iterator[str]:
    """Serve wheels as a registry with upload times does; yield its URL.

    Args:
        wheels: Files, with the date of each.
    """
    by_name: dict[str, list[dict[str, object]]] = {}
    for file, date in wheels.items():
        content = file.read_bytes()
        by_name.setdefault(file.name.split("-")[0].replace("_", "-"), []).append(
            {
                "filename": file.name,
                "url": f"/files/{file.name}",
                "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
                "size": len(content),
                "upload-time": f"{date}T00:00:00.000000Z",
                "requires-python": ">=3.8",
                "yanked": False,
            }
        )
    files = {file.name: file for file in wheels}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.strip("/").split("/")
            if parts[0] == "simple" and parts[1] in by_name:
                listing = {"meta": {"api-version": "1.1"}, "name": parts[1], "files": by_name[parts[1]], "versions": []}
                self._answer(json.dumps(listing).encode(), "application/vnd.pypi.simple.v1+json")
            elif parts[0] == "files" and parts[1] in files:
                self._answer(files[parts[1]].read_bytes(), "application/octet-stream")
            else:
                self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
