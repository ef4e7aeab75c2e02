"""The image without PyTorch, really built by buildah and really run by podman."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sie_bundle.images.builders import find_builder
from sie_bundle.images.plan import DATE
from sie_bundle.locks.lock import read_lock

from tests.images.built.bill import check_bill, leftovers
from tests.images.built.programs import BUILDER, container, files_of, inspect
from tests.images.built.tools import AGAIN, ROOT, build, check_size, compressed

pytestmark = pytest.mark.timeout(1500)  # base, wheels and image are made on first use
LARGEST = 120_000_000
ASK = """
import time, urllib.request
while True:
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8080/livez").status)
        break
    except OSError:
        time.sleep(0.1)
"""
PLUGINS = ("sie-cluster", "sie-core", "sie-nats", "sie-objectstore")
"""Distributions of what `sie plugins` lists."""


@pytest.fixture(scope="module")
def files(gateway_image: str) -> Iterator[Path]:
    with files_of(gateway_image) as folder:
        yield folder


def hashes(folder: Path) -> dict[Path, tuple[int, str]]:
    """Return mode and hash of each file below a folder."""
    return {
        file.relative_to(folder): (file.stat().st_mode, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in folder.rglob("*")
        if file.is_file() and not file.is_symlink()
    }


def test_it_is_small_and_holds_nothing_but_what_serves(gateway_image: str, files: Path) -> None:
    size = compressed(files)
    assert size <= LARGEST
    check_size("sie-gateway", size, inspect(gateway_image)["Size"])
    assert leftovers(files) == []
    assert not list(files.glob("opt/sie/lib/python3.*/site-packages/torch"))


def test_its_bill_of_materials_is_what_is_in_it(files: Path, gateway_locks: Path) -> None:
    check_bill(files, gateway_locks / "sbom.cpu.cdx.json")


def test_a_second_build_elsewhere_gives_the_same_digest(
    gateway_image: str, gateway_locks: Path, files: Path, tmp_path: Path
) -> None:
    context = tmp_path / "elsewhere"
    build(ROOT / "images/gateway", gateway_locks, "--program", "gateway", "--context", str(context))
    find_builder(BUILDER).build(context, AGAIN, DATE, ["--no-cache"])
    if BUILDER == "docker":  # dates folders by the clock
        with files_of(AGAIN) as others:
            assert hashes(others) == hashes(files)
    else:
        assert inspect(AGAIN)["Digest"] == inspect(gateway_image)["Digest"]


def test_commands_run_as_nobody_on_a_root_that_is_read_only(
    gateway_image: str, gateway_locks: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with container(gateway_image, log, command=["--version"]) as one:
        assert one.process.wait(60) == 0
    assert log.read_text().strip() == "sie 1.0.0"
    with container(gateway_image, log, command=["plugins"]) as one:
        assert one.process.wait(60) == 0
    printed = {tuple(line.split()[1:3]) for line in log.read_text().splitlines() if not line.startswith(" ")}
    locked = {each.name: each.version for each in read_lock(gateway_locks / "pylock.cpu.toml").packages}
    assert printed == {(name, locked[name]) for name in PLUGINS}


def test_its_labels_name_the_version_inside_and_the_bytes_of_the_lock(
    gateway_image: str, files: Path, gateway_locks: Path
) -> None:
    labels = inspect(gateway_image)["Config"]["Labels"]
    inside = (files / "opt/sie/share/pylock.cpu.toml").read_bytes()
    assert inside == (gateway_locks / "pylock.cpu.toml").read_bytes()
    assert labels["sie.lock.sha256"] == hashlib.sha256(inside).hexdigest()
    assert labels["org.opencontainers.image.version"] == "1.0.0"
    assert (labels["sie.bundle"], labels["sie.platform"]) == ("gateway", "cpu")


def test_the_config_service_serves_tells_its_health_and_ends_by_sigterm(gateway_image: str, tmp_path: Path) -> None:
    options = ("--volume", "/cache", "--env", "SIE_CONFIG_STORE_DIR=/cache/store")
    with container(gateway_image, tmp_path / "log", *options, command=["config", "serve"]) as one:
        assert one.python(ASK) == "200"
        assert one.run("/opt/sie/bin/python", "-I", "-S", "/opt/sie/share/health.py") == ""
        status = one.run("cat", "/proc/1/status")
        assert "CapEff:\t0000000000000000" in status
        assert "Uid:\t10001\t10001" in status
        assert one.stop() == 0
