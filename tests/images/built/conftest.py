"""Images built once a session: those without PyTorch where tools are, the others where SIE_TEST_IMAGES=all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sie_core.cli.bundle import command
from tests.images.built import tools
from tests.images.built.tools import BASE, ROOT, VERSION


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine that builds and runs images; else a skip that says what is missing."""
    if missing := tools.lacking():
        pytest.skip(f"images are not built here: {missing}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(tools.containers_conf(tmp_path_factory.mktemp("podman"))))
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        patch.delenv("SOURCE_DATE_EPOCH", raising=False)
        tools.make_base(tmp_path_factory.mktemp("base"))
        yield
        # The base stays for the next session, and so do the stages' layers, which builders take again.
        tools.remove_what_was_built()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("SIE_TEST_WHEELS"):
        return Path(given)
    folder = tmp_path_factory.mktemp("built") / "wheels"
    tools.make_wheels(folder)
    return folder


def build(bundle: Path, locks: Path, *options: str) -> None:
    arguments = ["build", str(bundle), "--builder", "buildah", "--base", BASE, "--locks", str(locks), *options]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"


@pytest.fixture(scope="session")
def gateway_locks(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gateway-locks")
    tools.make_lock("gateway", ["sie-core", "sie-nats", "sie-objectstore"], folder, wheels)
    return folder


@pytest.fixture(scope="session")
def gateway_image(gateway_locks: Path) -> str:
    """The image without PyTorch."""
    build(ROOT / "images/gateway", gateway_locks, "--program", "gateway", "--tag", f"localhost/sie-gateway:{VERSION}")
    return f"localhost/sie-gateway:{VERSION}"


@pytest.fixture(scope="session")
def all_images() -> None:
    """Images with PyTorch are wanted; else a skip."""
    if os.environ.get("SIE_TEST_IMAGES") != "all":
        pytest.skip("images with PyTorch take minutes each: SIE_TEST_IMAGES=all builds and runs them")


@pytest.fixture(scope="session")
def default_locks(all_images: None, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("default-locks")
    tools.lock_default(folder, wheels)
    return folder


@pytest.fixture(scope="session")
def default_image(default_locks: Path) -> str:
    """The CPU image of the bundle `default`."""
    build(ROOT / "bundles/default", default_locks, "--tag", f"localhost/sie-server:{VERSION}-cpu-default")
    return f"localhost/sie-server:{VERSION}-cpu-default"
