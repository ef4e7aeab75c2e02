"""The Compose files: every service confined, by images that are built, with settings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from sie_bundle.bundles.reading import read_bundles
from sie_bundle.images.containerfile import CACHE, PYTHON, SHARE, USER
from sie_cluster.settings import ClusterSettings

from sie_core.settings import variables_of

ROOT = Path(__file__).parents[2]
FILES = ("compose.yaml", "compose.cluster.yaml")
OURS = re.compile(r"\$\{IMAGE_PREFIX:-\}(sie-gateway|sie-server):\$\{IMAGE_VERSION:-1\.0\.0\}(.*)")


def services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / file).read_text())["services"]
    return found


@pytest.mark.parametrize("file", FILES)
def test_every_service_runs_as_nobody_on_a_root_that_is_read_only(file: str) -> None:
    for name, service in services(file).items():
        assert service["user"] == USER, name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("file", FILES)
def test_every_service_of_ours_is_an_image_that_is_built_with_limit_and_health_gate(file: str) -> None:
    bundles = {bundle.name for bundle in read_bundles(ROOT / "bundles")}
    for name, service in services(file).items():
        if name == "broker":
            continue
        image = OURS.fullmatch(service["image"])
        assert image, service["image"]
        assert image[1] == "sie-gateway" or image[2].rpartition("-")[2] in bundles, service["image"]
        assert service["mem_limit"], name
        assert service["healthcheck"]["test"][:5] == ["CMD", PYTHON, "-I", "-S", f"{SHARE}/health.py"], name


def test_each_bundle_has_a_profile_and_port_and_all_share_one_cache() -> None:
    found = services("compose.yaml")
    assert {name: service["profiles"] for name, service in found.items()} == {name: [name] for name in found}
    assert {name: service["ports"][0].split(":", 2)[2] for name, service in found.items()} == {
        "default": "8080:8080",
        "sglang": "8081:8080",
        "gliner": "8082:8080",
        "cpu": "8083:8080",
    }
    assert all(f"cache:{CACHE}" in service["volumes"] for service in found.values())
    assert set(services("compose.gpu.yaml")) == set(found) - {"cpu"}


@pytest.mark.parametrize("file", FILES)
def test_variables_of_the_server_are_settings_that_exist(file: str) -> None:
    known = variables_of(ClusterSettings)
    for name, service in services(file).items():
        stated = service.get("environment", [])
        named = {each for each in stated if each.startswith("SIE_")}
        assert named <= known, name


def test_the_example_names_every_variable_of_the_files_with_its_default() -> None:
    example = (ROOT / ".env.example").read_text()
    for file in FILES:
        text = (ROOT / file).read_text()
        for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", text):
            assert re.search(rf"^(# )?{name}={re.escape(default)}$", example, re.MULTILINE), name
        for name in re.findall(r"^    - ([A-Z_]+)$", text, re.MULTILINE):
            assert re.search(rf"^# {name}=", example, re.MULTILINE), name


def test_who_is_at_the_broker_runs_from_an_image_with_its_plugin() -> None:
    folders = {"sie-gateway": ROOT / "images", "sie-server": ROOT / "bundles"}
    found = services("compose.cluster.yaml")
    at_broker = {name for name, service in found.items() if "SIE_NATS_URL" in service.get("environment", {})}
    assert at_broker == {"config", "gateway-1", "gateway-2", "sidecar-1", "sidecar-2"}
    for name in at_broker:
        image = OURS.fullmatch(found[name]["image"])
        assert image, name
        bundle = image[2].rpartition("-")[2] or "gateway"
        stated = yaml.safe_load((folders[image[1]] / bundle / "bundle.yaml").read_text())["plugins"]
        assert "nats" in stated, name


def test_both_halves_of_a_worker_meet_at_one_socket_of_their_own() -> None:
    found = services("compose.cluster.yaml")
    for number in ("1", "2"):
        worker, sidecar = found[f"worker-{number}"], found[f"sidecar-{number}"]
        assert worker["environment"]["SIE_IPC_SOCKET_PATH"] == sidecar["environment"]["SIE_IPC_SOCKET_PATH"]
        assert f"socket-{number}:/run/sie" in worker["volumes"]
        assert f"socket-{number}:/run/sie" in sidecar["volumes"]
