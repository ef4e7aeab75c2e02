"""The page at `/` in a real browser: what it shows of a server at work, and that it runs nothing that it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest
import uvicorn
from pydantic import SecretStr
from sie_kit.server import serving

from sie_core.api import create_app
from sie_core.contracts import Health, InferenceError, ModelInfo
from sie_core.settings import Settings
from tests.clients.chromium import Tab, opened

LONGEST_S = 60
EVIL = '<img src=x onerror="document.title=1">'
ROWS = """[...document.querySelectorAll('[data-at="models"] tbody tr')].map(
  row => [...row.cells].map(cell => cell.textContent))"""
LINK = """document.querySelector('[data-at="link"]').textContent"""
TRIED = """(async () => {
  const form = document.querySelector("#live form");
  form.closest("details").open = true;
  for (const [name, value] of Object.entries(FIELDS)) form.elements[name].value = value;
  form.querySelector("button").click();
  while (form.querySelector("button").disabled) await new Promise(resolve => setTimeout(resolve, 20));
  return form.querySelector("output").innerHTML;
})()"""

SERIOUS = """axe.run({rules: {"color-contrast": {enabled: CONTRAST}}}).then(found => JSON.stringify(
  found.passes.length < 10 ? ["axe looked at little"] :
  found.violations.filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => [each.id, each.help, each.nodes.slice(0, 3).map(node => node.html)])))"""

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


class Told:
    """A backend of models that are told of."""

    def __init__(self) -> None:
        self.listed: list[ModelInfo] = []

    def models(self) -> list[ModelInfo]:
        return self.listed

    def model(self, model: str) -> ModelInfo:
        raise InferenceError("MODEL_NOT_FOUND", model)

    def health(self) -> Health:
        return Health(None, None)


@contextmanager
def page_of(backend: Told, port: int = 0) -> Iterator[int]:
    """Serve the API over a backend, and give its port."""
    app = create_app(backend, Settings())  # type: ignore[arg-type]
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
    with closing(socket.create_server(("127.0.0.1", port))) as listener:
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LONGEST_S)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder: Path = tmp_path_factory.mktemp("browser")
    with opened(folder) as tab:
        yield tab


def until(tab: Tab, script: str, wanted: object) -> None:
    """Wait until an expression in the page has a value."""
    end, value = time.monotonic() + LONGEST_S, None
    while (value := tab.run(script)) != wanted:
        assert time.monotonic() < end, value


def loaded(name: str, **facts: object) -> ModelInfo:
    return ModelInfo(name, ("text",), ("dense",), **{"dims": {}, "state": "loaded", "memory_bytes": 10**6} | facts)  # type: ignore[arg-type]


def test_models_are_shown_as_text_and_a_lost_connection_is_said(tab: Tab) -> None:
    backend, before = Told(), len(tab.complaints)
    with page_of(backend) as port:
        tab.open(f"http://127.0.0.1:{port}/")
        until(tab, LINK, "Live.")
        assert tab.run(ROWS) == []
        fetch = {"fetch": "3 of 9 MB fetched"}
        backend.listed = [loaded(EVIL, available=True), loaded("org/m", state="loading", notes=fetch)]
        until(
            tab,
            ROWS,
            [["org/m", "loading: 3 of 9 MB fetched", "", "0", "never"], [EVIL, "loaded", "1 MB", "0", "never"]],
        )
        tab.open(f"http://127.0.0.1:{port}/")  # the list of the server's own, too
        until(tab, f"({ROWS}).length", 2)
        assert tab.run("document.querySelectorAll('img').length") == 0
        backend.listed = [loaded(f"org/m{number}") for number in range(300)]
        until(tab, f"({ROWS}).length", 300)
        assert tab.complaints[before:] == []
    until(tab, f"{LINK}.endsWith('what is shown is old. Trying again …')", True)
    with page_of(backend, port):
        until(tab, LINK, "Live.")


def test_each_operation_can_be_tried_behind_a_token(tab: Tab, tmp_path: Path) -> None:
    fakes = ("sie-fake/dense", "sie-fake/reranker", "sie-fake/extractor")
    with serving(auth_mode="token", auth_token=SecretStr("hush?>"), plugins=("fake",), preload_models=fakes) as served:
        tab.open(served.url)
        tab.run("sessionStorage.setItem('sie-token', 'hush?>')")
        tab.open(served.url)
        until(tab, "document.querySelector('[data-at=\"link\"]')?.textContent", "Live.")
        texts = "Ada Lovelace lived in London\nParis <b>"
        told = [
            tab.run(
                TRIED.replace(
                    "FIELDS", json.dumps({"operation": operation, "model": model, "more": more, "texts": texts})
                )
            )
            for operation, model, more in zip(
                ("encode", "score", "extract"), fakes, ("", "who?", "person, place"), strict=True
            )
        ]
        assert told[0].count("1.000") >= 2
        assert told[0].startswith("<table>")
        assert told[1].count("<li>") == 2
        assert told[2].startswith("<div><p>")
        assert "<b>" not in "".join(told)
        until(tab, "document.querySelector('[data-at=\"stages\"]').hidden", False)
        for scheme in ("light", "dark"):
            tab.use(scheme)
            (tmp_path / f"{scheme}.png").write_bytes(tab.picture())
        tab.use("light", width=360)
        assert tab.run("document.documentElement.scrollWidth <= 360"), "it fits a phone"


def test_axe_finds_nothing_serious_with_any_number_of_models_and_the_page_is_small(tab: Tab, tmp_path: Path) -> None:
    package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    backend = Told()
    with page_of(backend) as port:
        for count in (0, 3, 300):
            backend.listed = [loaded(f"org/m{number}", available=True) for number in range(count)]
            tab.open(f"http://127.0.0.1:{port}/")
            until(tab, f"({ROWS}).length", count)
            tab.run(f"{axe};0")
            for scheme in ("light", "dark") if count < 300 else ("light",):
                tab.use(scheme)
                (tmp_path / f"{count}-{scheme}.png").write_bytes(tab.picture())
                contrast = "true" if count < 300 else "false"  # it is that of three, and takes long
                assert json.loads(tab.run(SERIOUS.replace("CONTRAST", contrast))) == []
        tab.use("light")
        size = "performance.getEntries().reduce((sum, each) => sum + (each.decodedBodySize ?? 0), 0)"
        assert 0 < tab.run(size) <= 60 * 1024
