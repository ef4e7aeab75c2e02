"""Bundles that are added, changed and removed while the service runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.config_service.crashes.processes import until
from tests.config_service.program.conftest import ADMIN
from tests.conftest import Server

MODEL = {"sie_id": "acme/fake", "package_backed": True, "profiles": {"default": {"adapter_path": "fake"}}}


def ask(server: Server, method: str, path: str, body: object = None) -> Any:
    """Return the status and the JSON of an answer."""
    reply = httpx.request(method, f"{server.url}/v1/configs/{path}", headers=ADMIN, json=body, timeout=60)
    return reply.status_code, reply.json()


def names(server: Server) -> list[str]:
    return [each["bundle_id"] for each in ask(server, "GET", "bundles")[1]["bundles"]]


def counted(server: Server, result: str) -> bool:
    return (
        f'sie_config_bundle_changes_total{{result="{result}"}}' in httpx.get(f"{server.url}/metrics", timeout=60).text
    )


def test_bundles_are_followed_while_the_service_runs_and_what_is_wrong_changes_nothing(
    server: Server, bundles: Path
) -> None:
    shipped, (_, before) = names(server), ask(server, "GET", "epoch")
    assert ask(server, "POST", "models", MODEL)[0] == 422
    file = bundles / "more/bundle.yaml"
    file.parent.mkdir()
    file.write_text("{priority: 10, plugins: [fake]}")
    until(lambda: names(server) == ["more", *shipped], "the bundle is told")
    assert ask(server, "GET", "epoch")[1] != before
    status, posted = ask(server, "POST", "models", MODEL)
    assert (status, posted["routable_bundles_by_profile"]) == (201, {"default": ["more"]})
    _, added = ask(server, "GET", "epoch")
    file.write_text("{priority: 10, plugins: [fake], surprise: 1}")
    server.wait_for_log(r"bundles have changed and are not followed.*more/bundle\.yaml:1: `surprise`")
    assert (ask(server, "GET", "epoch")[1], counted(server, "refused")) == (added, True)
    file.write_text("{priority: 2000, plugins: [fake]}")
    until(lambda: names(server) == [*shipped, "more"], "the corrected bundle is told")
    file.unlink()
    until(lambda: names(server) == shipped, "the bundle is told no more")
    assert (ask(server, "POST", "resolve", {"model": "acme/fake"})[0], counted(server, "applied")) == (404, True)
    assert ask(server, "DELETE", "models/acme/fake")[0] == 200
    assert ask(server, "GET", "epoch")[1] == {**before, "epoch": before["epoch"] + 2}
