"""The page on the config service: its requests answer what it prints, its backup is one, its tables are whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from sie_cluster.config_service.api import reading, writing
from sie_cluster.config_service.api.app import PREFIX
from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.config_service.api.tokens import Tokens
from sie_cluster.config_service.metrics import ConfigMetrics
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ObjectLog

from sie_core.api import Gate
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.folder_store import FolderStore
from tests.config_service.api.serving import placement
from tests.config_service.program.conftest import TOKENS, config_server

PAGE = (Path(__file__).parents[2] / "docs/operate/cluster/config-service.md").read_text(encoding="utf-8")
MOST_COPIES = 100
ADDRESS = "http://127.0.0.1:8080"
PAIRS = re.findall(r"```sh\n([^`]*)```\n+```(?:json|text)\n([^`]*)```", PAGE)
BACKUP, RESTORE = (each for each in re.findall(r"```sh\n([^`]*)```", PAGE) if each.startswith("cp "))


def run(command: str, folder: Path, url: str = "") -> str:
    """Run a snippet of the page in a folder, with the tokens that it names."""
    here = command.replace(ADDRESS, url)
    env = {**os.environ, **TOKENS}
    done = subprocess.run(["bash", "-ec", here], cwd=folder, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_requests_of_the_page_answer_what_it_prints_and_its_backup_brings_back_what_it_held(tmp_path: Path) -> None:
    with config_server(tmp_path, TOKENS) as server:
        for asked, answer in PAIRS:
            told = run(asked, tmp_path, server.url)
            pattern = ".*?".join(map(re.escape, answer.strip().split("...")))
            assert re.fullmatch(pattern, told, re.DOTALL), f"{asked}\n{told}"
        added = PAIRS[0][0].replace("encoder-1", "encoder-2")
        run(added, tmp_path, server.url)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    run(BACKUP, tmp_path)
    (tmp_path / "config-store" / "configs.json").unlink()
    run(RESTORE, tmp_path)
    with config_server(tmp_path, TOKENS) as server:
        assert state(server.url) == (5, 200)


def state(url: str) -> tuple[int, int]:
    """The epoch, and the status of the page's model."""
    with httpx.Client(
        base_url=f"{url}/v1/configs", headers={"Authorization": TOKENS["SIE_ADMIN_TOKEN"]}, timeout=60
    ) as client:
        return client.get("/epoch").json()["epoch"], client.get("/models/acme/encoder").status_code


async def test_every_route_has_a_request_and_its_answer(tmp_path: Path) -> None:
    rows = [line.split("|")[1] for line in PAGE.partition("### Add a model")[0].splitlines() if line.startswith("| `")]
    routes = [route for row in rows for route in re.findall(r"`(\w+) (/[^`]+)`", row)]
    asked = [snippet for snippet, _ in PAIRS]
    for method, path in routes:
        pattern = rf"/v1/configs{re.sub(r'{[^}]*}', r'[^/ ].*', path)}[\s\\]"
        assert any(re.search(pattern, each) and called(each) == method for each in asked), f"{method} {path}"
    log = ObjectLog(BackupStore(FolderStore(tmp_path)))
    service = ConfigService(make_catalog(1, []), placement(), log, name="nobody")
    api = ConfigApi(service, Tokens(production=False), Gate(1), ConfigMetrics())
    there = {
        (method, re.sub(r"{.*}", "{id}", route.path.removeprefix(PREFIX)))
        for route in (*writing.router(api).routes, *reading.router(api).routes)
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert set(routes) == there


def called(snippet: str) -> str:
    named = re.search(r"-X (\w+)", snippet)
    return named.group(1) if named else "POST" if " -d " in snippet or "--data" in snippet else "GET"


@pytest.mark.parametrize("metric", [each.name for each in ConfigMetrics().registry.collect()])
def test_every_metric_is_told(metric: str) -> None:
    assert re.search(rf"\| `{metric}(_total)?[{{`]", PAGE)
