"""Images built once a session: those without PyTorch where tools are, the others where SIE_TEST_IMAGES=all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from sie_bundle.building import build_wheels

from tests.cache import fake_hub
from tests.clients.conftest import openai_clients, published_sdk
from tests.gliner.library import library
from tests.images.built import programs, tools
from tests.images.built.tools import GATEWAY, ROOT, SERVER, build

__all__ = ["openai_clients", "published_sdk"]
LONGEST_SESSION_S = 1200
GLINER = "urchade/gliner_small-v2.1"


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine that builds and runs images, for this session alone; else a skip that says what is missing."""
    if missing := programs.lacking():
        pytest.skip(f"images are not built here: {missing}")
    with (
        FileLock(Path(tempfile.gettempdir(), "sie-test-images.lock"), timeout=LONGEST_SESSION_S),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("CONTAINERS_CONF", str(programs.containers_conf(tmp_path_factory.mktemp("podman"))))
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        patch.delenv("SOURCE_DATE_EPOCH", raising=False)
        programs.make_base(tmp_path_factory.mktemp("base"))
        before = programs.unused()
        yield
        # The base stays for the next session.
        tools.remove_what_was_built()
        programs.remove_unused(before)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("SIE_TEST_WHEELS"):
        return Path(given)
    folder = tmp_path_factory.mktemp("built") / "wheels"
    build_wheels(ROOT, folder)
    return folder


@pytest.fixture(scope="session")
def gateway_locks(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gateway-locks")
    tools.make_lock(
        "gateway", ["sie-cluster[tracing]", "sie-core[tracing]", "sie-nats", "sie-objectstore"], folder, wheels
    )
    return folder


@pytest.fixture(scope="session")
def gateway_image(gateway_locks: Path) -> str:
    """The image without PyTorch."""
    build(ROOT / "images/gateway", gateway_locks, "--program", "gateway", "--tag", GATEWAY)
    return GATEWAY


@pytest.fixture(scope="session")
def all_images() -> None:
    """Images with PyTorch are wanted; else a skip."""
    if os.environ.get("SIE_TEST_IMAGES") != "all":
        pytest.skip("images with PyTorch take minutes each: SIE_TEST_IMAGES=all builds and runs them")


@pytest.fixture(scope="session")
def default_locks(all_images: None, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools.lock_bundle("default", tmp_path_factory.mktemp("default-locks"), wheels)


@pytest.fixture(scope="session")
def default_image(default_locks: Path) -> str:
    """The CPU image of the bundle `default`."""
    return tools.build_server("default", default_locks)


@pytest.fixture(scope="session")
def cpu_locks(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools.lock_bundle("cpu", tmp_path_factory.mktemp("cpu-locks"), wheels)


@pytest.fixture(scope="session")
def cpu_image(cpu_locks: Path) -> str:
    """The image of the bundle `cpu`, without PyTorch."""
    return tools.build_server("cpu", cpu_locks)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of gliner."""
    return library().write(tmp_path_factory.mktemp("checkpoint"), "span")


@pytest.fixture(scope="session")
def gliner_image(all_images: None, checkpoint: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The CPU image of the bundle `gliner` with the tiny checkpoint baked, in the place of a model that it serves."""
    folder, tag = tmp_path_factory.mktemp("bundle") / "gliner", f"{SERVER}-cpu-gliner"
    shutil.copytree(ROOT / "bundles/gliner", folder)
    with (folder / "bundle.yaml").open("a") as file:
        file.write(f"models:\n  - {{id: {GLINER}, revision: {fake_hub.COMMIT}, bake: true}}\n")
    tools.make_lock("gliner", [f"torch=={tools.TORCH}", "sie-gliner", "sie-cpu", "sie-objectstore"], folder, wheels)
    with fake_hub.run_hub() as hub, pytest.MonkeyPatch.context() as patch:
        hub.files[GLINER] = fake_hub.files_of(checkpoint)
        for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "SIE_HF_FALLBACK": "true"}.items():
            patch.setenv(name, value)
        build(folder, folder, "--tag", tag)
    return tag
