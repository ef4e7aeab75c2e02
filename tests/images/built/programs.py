"""The programs that build and run the images of the tests: buildah and podman with runc, or docker in their place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sie_bundle.images.plan import DATE

BASE = "localhost/sie-test-base:bookworm"
PACKAGES = "python3-minimal,libpython3-stdlib,libstdc++6,ca-certificates,netbase"
SLIM = tuple(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "info", "locale", "man"))
"""What Debian's slim images, on which those of the bundles stand, leave out."""
CONFINED = ("--user", "10001:10001", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--read-only")
PODMAN = ("buildah", "podman", "runc")
RUNNER = os.environ.get("SIE_TEST_IMAGES_BY") or ("podman" if all(map(shutil.which, PODMAN)) else "docker")
"""What runs containers: docker where podman is not there, or `SIE_TEST_IMAGES_BY=docker` says so."""
BUILDER = "buildah" if RUNNER == "podman" else RUNNER
HOST = "host.containers.internal"
"""How containers with a network name this machine."""
EXTRA_HOSTS = [f"{HOST}:host-gateway"] if RUNNER == "docker" else []
"""podman writes the name by itself."""
FIRST_START_S = 60.0


def lacking() -> str | None:
    """Say what keeps images from being built here; None where nothing does."""
    needed = (*(PODMAN if RUNNER == "podman" else (RUNNER,)), "mmdebstrap", "zstd")
    if missing := [each for each in needed if shutil.which(each) is None]:
        return f"{', '.join(missing)}: not installed (Debian has packages of these names; docker serves too)"
    if RUNNER == "docker" and subprocess.run(["docker", "version"], check=False, capture_output=True).returncode:
        return "the daemon of docker does not answer"
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
    """Write podman's configuration for machines without systemd, whose limits this process may not raise."""
    file = folder / "containers.conf"
    file.write_text(
        "[containers]\ndefault_ulimits = []\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    return file


def make_base(folder: Path) -> None:
    """Make the image of Debian and its Python that images of the tests stand on, once a machine."""
    if subprocess.run([RUNNER, "image", "inspect", BASE], capture_output=True, check=False).returncode == 0:
        return
    archive = folder / "base.tar"
    run("mmdebstrap", "--variant=essential", f"--include={PACKAGES}", *SLIM, "bookworm", archive)
    if RUNNER == "docker":
        run("docker", "import", archive, BASE)
    else:
        container = run("buildah", "from", "scratch")
        run("buildah", "add", "-q", container, archive, "/")
        run("buildah", "commit", "-q", "--rm", "--timestamp", str(DATE), container, BASE)
    archive.unlink()


def inspect(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(RUNNER, "image", "inspect", image))[0]
    return found


def layers(image: str) -> list[str]:
    """Return the digests of an image's layers, the base's first."""
    found: list[str] = inspect(image)["RootFS"]["Layers"]
    return found


def unused() -> set[str]:
    """List the images without a name: stages of builds."""
    return set(run(RUNNER, "images", "--quiet", "--no-trunc", "--filter", "dangling=true").split())


def remove_unused(but: set[str]) -> None:
    """Remove the images without a name, but those given."""
    if images := unused() - but:
        subprocess.run([RUNNER, "rmi", *images], check=False, capture_output=True)


@contextmanager
def files_of(image: str) -> Iterator[Path]:
    """Have the files of an image in a folder, which is not to be written to."""
    if BUILDER == "buildah":
        name = run("buildah", "from", "--pull-never", image)
        try:
            yield Path(run("buildah", "mount", name))
        finally:
            run("buildah", "rm", name)
        return
    name = run(RUNNER, "create", image)
    try:
        with tempfile.TemporaryDirectory(prefix="sie-image-") as folder:
            run(RUNNER, "export", "--output", f"{folder}.tar", name)
            run("tar", "-x", "-f", f"{folder}.tar", "-C", folder)
            Path(f"{folder}.tar").unlink()
            yield Path(folder)
    finally:
        run(RUNNER, "rm", name)


@dataclass
class Container:
    name: str
    process: subprocess.Popen[bytes]

    def run(self, *command: str) -> str:
        return run(RUNNER, "exec", self.name, *command)

    def python(self, code: str) -> str:
        return self.run("/opt/sie/bin/python", "-I", "-c", code)

    def signal_to_stop(self) -> None:
        run(RUNNER, "kill", "--signal", "TERM", self.name)

    def stop(self) -> int:
        self.signal_to_stop()
        return self.process.wait(60)


@contextmanager
def container(
    image: str, log: Path, *options: str, network: str = "none", command: Sequence[str] = ()
) -> Iterator[Container]:
    """Run an image as nobody, without capabilities, on a root that is read-only; without a network as a rule."""
    name = f"sie-test-{os.getpid()}-{time.monotonic_ns()}"
    started = [RUNNER, "run", "--rm", "--name", name, "--network", network, "--no-healthcheck", "--tmpfs", "/tmp"]
    with log.open("wb") as stream:
        process = subprocess.Popen([*started, *CONFINED, *options, image, *command], stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + FIRST_START_S
        while process.poll() is None and not _runs(name):
            assert time.monotonic() < end, f"{image} does not start"
            time.sleep(0.05)
        yield Container(name, process)
    finally:
        remove(name)
        process.wait(60)


def remove(name: str) -> None:
    """Kill and remove a container, if it is there."""
    for command in (["kill", name], ["rm", "--force", "--volumes", name]):
        subprocess.run([RUNNER, *command], check=False, capture_output=True)


def _runs(name: str) -> bool:
    asked = [RUNNER, "container", "inspect", "--format", "{{.State.Running}}", name]
    return subprocess.run(asked, capture_output=True, check=False).stdout.strip() == b"true"
