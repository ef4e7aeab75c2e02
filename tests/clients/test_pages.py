"""`/` and `/docs` in a real browser: every example can be tried, by day and by night, and no other host is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from sie_kit.server import serving

from tests.clients.chromium import Tab, opened

TOKEN = "hush"
GROUND = "getComputedStyle(document.body).backgroundColor"
TRIED = """(async () => {
  const forms = [...document.querySelectorAll(SELECTOR)];
  for (const form of forms) form.querySelector("button").click();
  const waiting = form => form.querySelector("button").disabled;
  while (forms.some(waiting)) await new Promise(resolve => setTimeout(resolve, 20));
  return forms.map(form => [form.querySelector(".address").textContent, form.querySelector(".outcome").textContent]);
})()"""
UNLOCKED = """(async () => {
  const form = document.querySelector("#unlock");
  if (!sessionStorage.getItem("sie-token")) {
    document.querySelector("#token").value = TOKEN;
    form.querySelector("button").click();
  }
  while (form?.isConnected && !form.querySelector("output").textContent)
    await new Promise(resolve => setTimeout(resolve, 20));
  return document.querySelector("main").textContent;
})()"""

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder: Path = tmp_path_factory.mktemp("browser")
    with opened(folder) as tab:
        yield tab


def tried(tab: Tab, selector: str) -> list[list[str]]:
    """Press the buttons of examples, and return the address and the outcome of each."""
    outcomes: list[list[str]] = tab.run(TRIED.replace("SELECTOR", repr(selector)))
    return outcomes


def test_every_example_of_the_docs_is_answered_when_it_is_tried(tab: Tab, minilm_server: str) -> None:
    tab.open(f"{minilm_server}/docs")
    outcomes = tried(tab, ".try")
    assert len(outcomes) > 30
    failed = [outcome for outcome in outcomes if not outcome[1].startswith("200 OK in ")]
    assert failed == [["/classify", ""]]  # no model here has classes
    # The field for its model is required and empty, within an entry that is closed.
    assert [each for each in tab.complaints if "not focusable" not in each] == []
    assert {urlsplit(url).netloc for url in tab.asked} == {urlsplit(minilm_server).netloc}


def test_pages_follow_the_scheme_of_the_desk_and_say_what_is_wrong_with_a_try(tab: Tab, minilm_server: str) -> None:
    for path in ("/", "/docs"):
        grounds = []
        for scheme in ("light", "dark"):
            tab.use(scheme)
            tab.open(minilm_server + path)
            grounds.append(tab.run(GROUND))
        assert grounds[0] == "rgb(255, 255, 255)"
        assert grounds[1] != grounds[0]
    tab.run("document.querySelector('#openai .try textarea').value = '{'")
    [_, outcome] = tried(tab, "#openai .try")[0]
    assert outcome.startswith("400 ")
    assert "JSON" in tab.run("document.querySelector('#openai .reply').textContent")


def test_a_token_opens_a_page_and_goes_with_every_try(tab: Tab) -> None:
    with serving(
        auth_mode="token", auth_token=SecretStr(TOKEN), plugins=("fake",), preload_models=("sie-fake/embedder",)
    ) as served:
        tab.open(f"{served.url}/docs")
        assert "not one that may call" in tab.run(UNLOCKED.replace("TOKEN", "'wrong'"))
        tab.open(f"{served.url}/docs")
        assert "Vectors of two texts" in tab.run(UNLOCKED.replace("TOKEN", repr(TOKEN)))
        assert tried(tab, "#encode .try")[0][1].startswith("200 OK in ")
        tab.open(f"{served.url}/v1/models/sie-fake/embedder")
        assert '"name": "sie-fake/embedder"' in tab.run(UNLOCKED)
