"""Real Hub cache folders, small disks, and a server that plays the Hub."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.cache.fake_hub import COMMIT, FILES, FakeHub, blob_name, run_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub on a local port that has the repository `org/m`."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with run_hub() as served:
        yield served


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount disks of their own in memory: `disk("4m")`."""
    with ExitStack() as mounts:

        def mount(size: str, name: str = "disk") -> Path:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
            )
            if done.returncode != 0:
                pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
            mounts.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            return folder

        yield mount


def make_read_only(disk: Path) -> None:
    """Turn a mounted disk read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.fixture
def cached(tmp_path: Path) -> Callable[..., Path]:
    """Write a repository into a cache the way the Hub's client lays it out; give its snapshot's folder."""

    def write(
        repo: str = "org/m",
        commit: str = COMMIT,
        ref: str | None = "main",
        cache: Path = tmp_path / "cache",
        **files: bytes | None,
    ) -> Path:
        folder = cache / f"models--{repo.replace('/', '--')}"
        snapshot, blobs = folder / "snapshots" / commit, folder / "blobs"
        for each in (snapshot, blobs, folder / "refs"):
            each.mkdir(parents=True, exist_ok=True)
        if ref is not None:
            (folder / "refs" / ref).write_text(commit)
        content = {name: FILES[name] for name in ("config.json", "model.safetensors", "tokenizer.json")} | files
        for name, data in content.items():
            if data is not None:
                blob = blobs / blob_name(name, data)
                blob.write_bytes(data)
                (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
                (snapshot / name).symlink_to(blob)
        return snapshot

    return write
