"""Images that are really built and run: a base by mmdebstrap, builds by buildah, containers by podman with runc."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sie_core.bundling.building import build_wheels
from sie_core.bundling.images.plan import DATE
from sie_core.bundling.locks.lock import Lock, write_lock
from sie_core.cli.bundle import command as sie_bundle
from tests.images.conftest import locked

ROOT = Path(__file__).parents[3]
BASE = "localhost/sie-test-base:bookworm"
TORCH = "2.13.0+cpu"
VERSION = f"test-{os.getpid()}"
"""Of the images of this session: another beside it has its own."""
TAGS = (
    f"sie-gateway:{VERSION}",
    *(f"sie-server:{VERSION}-{each}" for each in ("again", "cpu-default", "gliner")),
    "sie-server:1.0.0-cpu-acme",
)
PACKAGES = "python3-minimal,libpython3-stdlib,libstdc++6,ca-certificates,netbase"
NEEDED = ("buildah", "podman", "mmdebstrap", "runc", "zstd")
SIZES: dict[str, tuple[int, int]] = json.loads((Path(__file__).parent / "sizes.json").read_text())
"""Bytes of images without weights: by zstd, and unpacked, as they were when they were last looked at."""
GROWTH = 1.05
CONFINED = ("--user", "10001:10001", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--read-only")


def lacking() -> str | None:
    """Say what keeps images from being built here; None where nothing does."""
    if missing := [each for each in NEEDED if shutil.which(each) is None]:
        return f"{', '.join(missing)}: not installed (Debian has packages of these names)"
    if os.geteuid():
        return "only root may build images here"
    if sys.version_info[:2] != (3, 11):
        return "the base of the tests, Debian 12, has Python 3.11"
    return None


def run(*command: str | Path, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return what it wrote; `variables` are all of its environment."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1500, cwd=folder, env=variables)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


def containers_conf(folder: Path) -> Path:
    """Write a configuration for machines without systemd, whose limits this process may not raise."""
    file = folder / "containers.conf"
    file.write_text(
        "[containers]\ndefault_ulimits = []\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    return file


def make_base(folder: Path) -> None:
    """Make the image of Debian and its Python that images of the tests stand on, once a machine."""
    if (
        subprocess.run(["buildah", "inspect", "--type", "image", BASE], capture_output=True, check=False).returncode
        == 0
    ):
        return
    archive = folder / "base.tar"
    run("mmdebstrap", "--variant=essential", f"--include={PACKAGES}", "bookworm", archive)
    container = run("buildah", "from", "scratch")
    run("buildah", "add", "-q", container, archive, "/")
    run("buildah", "commit", "-q", "--rm", "--timestamp", str(DATE), container, BASE)
    archive.unlink()


def make_wheels(out: Path) -> None:
    build_wheels(ROOT, out)


def make_lock(name: str, asked: Sequence[str | Path], folder: Path, wheels: Path) -> None:
    """Lock what pip finds for `asked`: wheels of ours from `wheels`, others from the registry that pip asks here."""
    found = folder / "wheels"
    ours = [f"{part}=={_version(wheels, part)}" if "[" in str(part) else part for part in asked]
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--find-links", wheels]
    run(*command, "-d", found, *ours)
    packages = [locked(file, registry=not file.name.startswith("sie_")) for file in sorted(found.glob("*.whl"))]
    (folder / "pylock.cpu.toml").write_text(write_lock(Lock(name, "cpu", "3.11", tuple(packages))))


def lock_default(folder: Path, wheels: Path) -> None:
    """Lock the bundle `default` by its own command, with PyTorch's CPU build as pip finds it here."""
    shutil.copytree(wheels, found := folder / "wheels")
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", found, f"torch=={TORCH}")
    options = ["--platform", "cpu", "--wheels", wheels, "--index", "none", "--find-links", found, "--out", folder]
    done = CliRunner().invoke(sie_bundle, ["lock", *map(str, [ROOT / "bundles/default", *options])])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"


def _version(wheels: Path, requirement: str | Path) -> str:
    plain = str(requirement).partition("[")[0].replace("-", "_")
    return next(wheels.glob(f"{plain}-*.whl")).name.split("-")[1]


@dataclass
class Container:
    name: str
    process: subprocess.Popen[bytes]

    def run(self, *command: str) -> str:
        return run("podman", "exec", self.name, *command)

    def python(self, code: str) -> str:
        return self.run("/opt/sie/bin/python", "-I", "-c", code)

    def stop(self) -> int:
        run("podman", "kill", "--signal", "TERM", self.name)
        return self.process.wait(60)


@contextmanager
def container(image: str, log: Path, *options: str, command: Sequence[str] = ()) -> Iterator[Container]:
    """Run an image as nobody, without capabilities or network, on a root that is read-only."""
    name = f"sie-test-{os.getpid()}-{time.monotonic_ns()}"
    started = ["podman", "run", "--rm", "--name", name, "--network", "none", "--no-healthcheck", *CONFINED]
    with log.open("wb") as stream:
        process = subprocess.Popen([*started, *options, image, *command], stdout=stream, stderr=stream)
    try:
        while process.poll() is None and not _runs(name):
            time.sleep(0.05)
        yield Container(name, process)
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", name], check=False, capture_output=True)
        process.wait(60)


def _runs(name: str) -> bool:
    asked = ["podman", "container", "inspect", "--format", "{{.State.Running}}", name]
    return subprocess.run(asked, capture_output=True, check=False).stdout.strip() == b"true"


_mounted: list[str] = []


def remove_what_was_built() -> None:
    """Remove the containers that were mounted and the images that tests have tagged."""
    for command in (["buildah", "rm", *_mounted], ["podman", "rmi", "--force", *TAGS]):
        subprocess.run(command, check=False, capture_output=True)


def files_of(image: str) -> tuple[str, Path]:
    """Mount an image; return the container to remove, and where its files are."""
    name = run("buildah", "from", "--pull-never", image)
    _mounted.append(name)
    return name, Path(run("buildah", "mount", name))


def check_size(name: str, compressed: int, unpacked: int) -> None:
    """Hold an image against its last size: what grows by more than a twentieth is looked at by somebody."""
    print(f"{name} without weights: {compressed / 1e6:.0f} MB by zstd, {unpacked / 1e6:.0f} MB unpacked")
    for kind, now, last in zip(("by zstd", "unpacked"), (compressed, unpacked), SIZES[name], strict=True):
        assert now <= last * GROWTH, f"{name} {kind}: {last} -> {now} bytes: find out why, or write it into sizes.json"


def inspect(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("podman", "image", "inspect", image))[0]
    return found


def compressed(folder: Path, *left_out: str) -> int:
    """Return the bytes of a folder as a layer by zstd."""
    tar = subprocess.Popen(
        ["tar", "-C", folder, *(f"--exclude={each}" for each in left_out), "-c", "."], stdout=subprocess.PIPE
    )
    packed = subprocess.Popen(["zstd", "-q", "-3", "-T0"], stdin=tar.stdout, stdout=subprocess.PIPE)
    assert packed.stdout is not None
    size = sum(len(part) for part in iter(lambda: packed.stdout.read(2**20), b""))  # type: ignore[union-attr]
    assert (tar.wait(), packed.wait()) == (0, 0)
    return size


def unpacked(file: Path) -> bytes:
    """Return a blob of an image without its compression."""
    content = file.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
