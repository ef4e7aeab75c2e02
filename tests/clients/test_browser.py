"""A page in a real browser: one that may call reads what it asked for, any other cannot even have work done."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.chromium import browser_command

LONGEST_S = 90
MODEL = "sie-fake/embedder"
ROUTE = f"/v1/encode/{MODEL}"
PAGE = """<script>
const asked = {method: "POST", body: JSON.stringify({items: [{text: "from a page"}]})};
const ask = (url, more) => fetch(url, {...asked, ...more}).then(
  async reply => ({
    type: reply.type, status: reply.status, id: reply.headers.get("x-sie-request-id"), text: await reply.text()}),
  error => ({failed: error.name}));
const watch = url => new Promise(resolve => {
  const socket = new WebSocket(url.replace("http", "ws"));
  socket.onmessage = message => resolve(JSON.parse(message.data).ready);
  socket.onerror = () => resolve("refused");
});
(async () => fetch("/told", {method: "POST", body: JSON.stringify({
  json: await ask(URL_ + ROUTE_, {headers: {"Content-Type": "application/json", "X-SIE-Timeout-Ms": "20000"}}),
  plain: await ask(URL_ + ROUTE_, {mode: "no-cors"}),
  watched: await watch(URL_ + "/ws/status"),
})}))();
</script>"""

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


class Site:
    """A site whose one page calls `url` and tells what came of it."""

    def __init__(self) -> None:
        self.url = ""
        self.told: queue.Queue[Any] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(PAGE.replace("URL_", json.dumps(site.url)).replace("ROUTE_", json.dumps(ROUTE)).encode())

            def do_POST(self) -> None:
                site.told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site()
    with served.server as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        server.shutdown()
        thread.join(10)


@contextmanager
def visiting(site: Site, folder: Path) -> Iterator[None]:
    command = browser_command(folder, site.origin)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def encoded(url: str) -> int:
    """Count the texts that the model was given."""
    lines = httpx.get(f"{url}/metrics", headers={"Accept": "text/plain"}, timeout=60).text.splitlines()
    counted = [line for line in lines if line.startswith(f'sie_items_total{{model="{MODEL}"}}')]
    return int(float(counted[0].rpartition(" ")[2])) if counted else 0


def test_a_page_that_may_call_gets_its_preflight_answered_and_reads_the_reply(start_server, site, tmp_path) -> None:
    environment = {"SIE_PLUGINS": "fake", "SIE_CORS_ORIGINS": site.origin}
    site.url = start_server(environment, ["--preload", MODEL]).url
    with visiting(site, tmp_path / "profile"):
        told = site.told.get(timeout=LONGEST_S)
    assert (told["json"]["type"], told["json"]["status"]) == ("cors", 200)
    assert len(json.loads(told["json"]["text"])["items"][0]["dense"]["values"]) == 32
    assert told["json"]["id"], "the page reads the reply's headers too"
    assert told["watched"] is True


def test_any_other_page_has_no_work_done_and_reads_nothing(fake_server, site, tmp_path) -> None:
    site.url, before = fake_server, encoded(fake_server)
    with visiting(site, tmp_path / "profile"):
        told = site.told.get(timeout=LONGEST_S)
    assert told["json"] == {"failed": "TypeError"}, "the browser says no more of a refused preflight"
    assert told["plain"] == {"type": "opaque", "status": 0, "id": None, "text": ""}
    assert told["watched"] == "refused"
    assert encoded(fake_server) == before
