"""The pages a browser gets: whole in one reply, and nothing for programs, which get JSON as ever."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from pydantic import SecretStr

from sie_core import __version__
from sie_core.api import create_app
from sie_core.api.inference.direct import DirectApp
from sie_core.contracts import Health, InferenceError
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = ("/", "/docs")


@pytest.fixture
async def guarded(backend: TellTaleBackend) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(backend, Settings(auth_mode="token", auth_token=SecretStr("right")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        yield client


def check_whole(reply: httpx.Response) -> None:
    """Hold a page to its policy: its own style and script may run, and nothing is loaded."""
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        [held] = re.findall(rf"<{tag}>(.*?)</{tag}>", reply.text, re.DOTALL)
        digest = b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert not re.findall(r"""\s(?:src|srcset|action)=|@import|url\(|\sstyle=|\son\w+=""", reply.text)
    assert not re.findall(r"""<(?:a|link|form)[^>]*?\shref=["']?(?:https?:)?//""", reply.text)


async def test_pages_are_whole_and_load_nothing(client: httpx.AsyncClient, guarded: httpx.AsyncClient) -> None:
    for path in PAGES:
        reply = await client.get(path, headers=BROWSER)
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        check_whole(reply)
        check_whole(await guarded.get(path, headers=BROWSER))


async def test_the_root_tells_programs_in_json_and_browsers_in_a_page(client: httpx.AsyncClient) -> None:
    told = await client.get("/", headers={"Accept": "*/*"})
    assert (told.json()["name"], told.json()["version"], told.json()["type"]) == ("SIE", __version__, "standalone")
    assert told.json()["ready"] is True
    for link in told.json()["links"].values():
        assert (await client.get(link)).status_code == 200
    page = (await client.get("/", headers=BROWSER)).text
    assert __version__ in page
    for link in set(re.findall(r'href="(/[^"]*)"', page)):
        assert (await client.get(link)).status_code == 200, link
    head = await client.head("/")
    assert (head.status_code, head.headers["vary"]) == (200, "Accept")


async def test_the_root_shows_the_models_that_are_here_and_a_request_that_one_answers(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (await client.get("/", headers=BROWSER)).text
    assert "No weights are here yet" in shown
    assert "1 more of the catalog" in shown
    assert (await client.get("/")).json()["models"] == []
    model = replace(backend.model("org/model"), available=True, operations=("encode", "score"))
    monkeypatch.setattr(backend, "models", lambda: [model])
    assert (await client.get("/")).json()["models"] == ["org/model"]
    shown = (await client.get("/", headers=BROWSER)).text
    assert "dense (4)" in shown
    assert "curl http://sie/v1/encode/org/model" in shown


async def test_the_page_can_be_turned_off(backend: TellTaleBackend) -> None:
    app = create_app(backend, Settings(status_page=False))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        assert (await client.get("/", headers=BROWSER)).json()["name"] == "SIE"
        assert "<h1>" in (await client.get("/docs", headers=BROWSER)).text


async def test_the_page_is_small(client: httpx.AsyncClient) -> None:
    assert len((await client.get("/", headers=BROWSER)).content) <= 60_000


async def test_the_root_is_there_before_the_models_are_known(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> list[object]:
        raise InferenceError("QUEUE_UNAVAILABLE", "no models yet")

    monkeypatch.setattr(backend, "models", unknown)
    backend.state = Health(None, "no <worker> yet")
    assert (await client.get("/")).json() | {"links": {}} == {
        "name": "SIE", "version": __version__, "type": "standalone", "ready": False, "models": [], "links": {},
    }  # fmt: skip
    page = (await client.get("/", headers=BROWSER)).text
    assert "Not ready: no &lt;worker&gt; yet." in page
    assert "/v1/encode/{model}" in (await client.get("/docs", headers=BROWSER)).text


async def test_the_docs_list_every_route_with_what_can_be_tried(app: DirectApp, client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs", headers=BROWSER)).text
    for path in app.openapi()["paths"]:
        assert f"<code>{path}</code>" in page
    for name in app.openapi()["components"]["schemas"]:
        assert f'id="{name}"' in page
    for anchor in set(re.findall(r'href="#([^"]*)"', page)):
        assert f'id="{anchor}"' in page


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/models", "/no/such/route"])
async def test_a_browser_without_a_token_is_told_how_to_give_one(guarded: httpx.AsyncClient, path: str) -> None:
    page = await guarded.get(path, headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert page.headers["www-authenticate"] == "Bearer"
    assert 'id="unlock"' in page.text
    check_whole(page)
    program = await guarded.get(path, headers={"Accept": "*/*"})
    assert (program.status_code, program.headers["content-type"]) == (401, "application/json")
    posted = await guarded.post(path, headers=BROWSER, json={})
    assert (posted.status_code, posted.headers["content-type"]) == (401, "application/json")


async def test_a_page_names_nothing_of_the_request_unescaped(guarded: httpx.AsyncClient) -> None:
    page = await guarded.get("/<script>alert(1)</script>?<b>", headers=BROWSER)
    assert page.status_code == 401
    assert "<script>alert" not in page.text
    assert "<b>" not in page.text
