"""Wheels, locks, sizes and names of the images that are really built and run."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from click.testing import CliRunner
from sie_bundle.cli import command as sie_bundle
from sie_bundle.locks.lock import Lock, write_lock

from tests.images.built.programs import BASE, BUILDER, RUNNER, run
from tests.images.conftest import locked

ROOT = Path(__file__).parents[3]
TORCH = "2.13.0+cpu"
VERSION = f"test-{os.getpid()}"
"""Of the images of this session: another beside it has its own."""
GATEWAY = f"localhost/sie-gateway:{VERSION}"
SERVER = f"localhost/sie-server:{VERSION}"
AGAIN = f"{SERVER}-again"
ACME = "sie-server:1.0.0-cpu-acme"
"""What the page on bundles builds."""
SIZES: dict[str, tuple[int, int]] = json.loads((Path(__file__).parent / "sizes.json").read_text())
"""Bytes of images without weights: by zstd, and unpacked, as they were when they were last looked at."""
GROWTH = 1.05
LONGEST_WAIT_S = 120.0


def build(bundle: Path, locks: Path, *options: str) -> None:
    """Build a bundle by its command on the base of the tests."""
    arguments = ["build", str(bundle), "--builder", BUILDER, "--base", BASE, "--locks", str(locks), *options]
    done = CliRunner().invoke(sie_bundle, arguments)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"


def remove_what_was_built() -> None:
    """Remove the images that tests have tagged."""
    tags = (GATEWAY, *(f"{SERVER}-cpu-{bundle}" for bundle in ("cpu", "default", "gliner")), AGAIN, ACME)
    subprocess.run([RUNNER, "rmi", "--force", *tags], check=False, capture_output=True)


def make_lock(name: str, asked: Sequence[str | Path], folder: Path, wheels: Path) -> None:
    """Lock what pip finds for `asked`: wheels of ours from `wheels`, others from the registry that pip asks here."""
    found = folder / "wheels"
    ours: list[str | Path] = [f"{part}=={_version(wheels, part)}" if "[" in str(part) else part for part in asked]
    command: list[str | Path] = [sys.executable, "-m", "pip", "download", "-q"]
    command += ["--only-binary", ":all:", "--find-links", wheels]
    run(*command, "-d", found, *ours)
    packages = [locked(file, registry=not file.name.startswith("sie_")) for file in sorted(found.glob("*.whl"))]
    (folder / "pylock.cpu.toml").write_text(write_lock(Lock(name, "cpu", "3.11", tuple(packages))))


def build_server(name: str, locks: Path) -> str:
    """Build the CPU image of a bundle of this project; return its tag."""
    tag = f"{SERVER}-cpu-{name}"
    build(ROOT / "bundles" / name, locks, "--tag", tag)
    return tag


def lock_bundle(name: str, folder: Path, wheels: Path) -> Path:
    """Lock a bundle by its own command into a folder, one with PyTorch with its CPU build as pip finds it here."""
    shutil.copytree(wheels, found := folder / "wheels")
    if name != "cpu":
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", found, f"torch=={TORCH}")
    options = ["--platform", "cpu", "--wheels", wheels, "--index", "none", "--find-links", found, "--out", folder]
    done = CliRunner().invoke(sie_bundle, ["lock", *map(str, [ROOT / "bundles" / name, *options])])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return folder


def _version(wheels: Path, requirement: str | Path) -> str:
    plain = str(requirement).partition("[")[0].replace("-", "_")
    return next(wheels.glob(f"{plain}-*.whl")).name.split("-")[1]


def check_size(name: str, compressed: int, unpacked: int) -> None:
    """Hold an image against its last size: what grows by more than a twentieth is looked at by somebody."""
    print(f"{name} without weights: {compressed / 1e6:.0f} MB by zstd, {unpacked / 1e6:.0f} MB unpacked")
    for kind, now, last in zip(("by zstd", "unpacked"), (compressed, unpacked), SIZES[name], strict=True):
        assert now <= last * GROWTH, f"{name} {kind}: {last} -> {now} bytes: find out why, or write it into sizes.json"


def compressed(folder: Path, *left_out: str) -> int:
    """Return the bytes of a folder as a layer by zstd."""
    tar = subprocess.Popen(
        ["tar", "-C", folder, *(f"--exclude={each}" for each in left_out), "-c", "."], stdout=subprocess.PIPE
    )
    packed = subprocess.Popen(["zstd", "-q", "-3", "-T0"], stdin=tar.stdout, stdout=subprocess.PIPE)
    stream = packed.stdout
    assert stream is not None
    size = sum(len(part) for part in iter(lambda: stream.read(2**20), b""))
    assert (tar.wait(), packed.wait()) == (0, 0)
    return size


def unpacked(file: Path) -> bytes:
    """Return a blob of an image without its compression."""
    content = file.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST_WAIT_S
    while not holds():
        assert time.monotonic() < end, f"it never was that {what}"
        time.sleep(0.1)


def wait_until_it_answers(url: str) -> None:
    asked = ["curl", "-sf", url]
    wait_until(lambda: subprocess.run(asked, check=False, capture_output=True).returncode == 0, f"{url} answers")
