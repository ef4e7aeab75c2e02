"""A local models folder that cannot be looked at is unreadable, and not taken for an empty one."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sie_core.catalog.sources.folder import FolderUnreadable
from sie_core.catalog.sources.local_folder import LocalFolder
from sie_core.settings import SettingsError

NOBODY = 65534


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a config and a folder of weights; its path is relative, as it is unless set."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    weights = Path("models/acme/tiny")
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    Path("models/mine.yaml").write_text("sie_id: acme/mine")
    return Path("models")


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Obey permissions, as root does not."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def refused(folder: LocalFolder) -> set[str]:
    told = set()
    for ask in (folder.stamp, folder.files):
        with pytest.raises(FolderUnreadable) as raised:
            ask()
        told.add(str(raised.value))
    return told


@pytest.mark.parametrize("mode", [0o700, 0o744])
def test_a_folder_that_may_not_be_read_any_more_is_no_empty_one(models: Path, mode: int) -> None:
    folder = LocalFolder(models)
    before = folder.stamp()
    models.chmod(mode if os.geteuid() == 0 else mode & 0o477)
    try:
        with unprivileged():
            assert refused(folder) == {"the models folder cannot be read now: Permission denied"}
    finally:
        models.chmod(0o755)
    assert folder.stamp() == before
    assert [Path(file.source) for file in folder.files()] == [models / "mine.yaml"]


def test_a_lack_of_file_handles_makes_no_folder_empty(models: Path) -> None:
    folder = LocalFolder(models)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert refused(folder) == {"the models folder cannot be read now: Too many open files"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_folder_that_vanishes_whole_is_unreadable_until_it_is_back(models: Path) -> None:
    folder = LocalFolder(models)
    before = folder.stamp()
    models.rename("moved")
    assert refused(folder) == {"the models folder cannot be read now: No such file or directory"}
    Path("moved").rename(models)
    assert folder.stamp() == before


def test_the_empty_place_of_a_share_that_is_not_mounted_removes_nothing(models: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == models.stat().st_dev:
            pytest.skip("the only file system here")
        folder = LocalFolder(Path("link"))
        Path("link").symlink_to(models)
        folder.stamp()
        Path("link").unlink()
        Path("link").symlink_to(other)
        (told,) = refused(folder)
        assert "on another device" in told
        Path(other, "new.yaml").write_text("sie_id: acme/new")
        assert [Path(file.source).name for file in folder.files()] == ["new.yaml"]


def test_a_folder_that_is_emptied_is_empty(models: Path) -> None:
    folder = LocalFolder(models)
    folder.stamp()
    (models / "mine.yaml").unlink()
    (models / "acme").rename("elsewhere")
    assert folder.stamp() == frozenset()
    assert folder.files() == []


def test_a_folder_that_never_was_there_holds_nothing_unless_it_was_asked_for(models: Path) -> None:
    assert LocalFolder(Path("other")).stamp() == frozenset()
    assert LocalFolder(Path("other")).files() == []
    with pytest.raises(SettingsError, match="SIE_MODELS_DIR=other: no such folder"):
        LocalFolder(Path("other"), needed=True).files()


@pytest.mark.parametrize("name", ["config.json", "modules.json", "gliner_config.json", "new_library_config.json"])
@pytest.mark.parametrize("place", ["new", "org/new"])
def test_a_new_folder_is_seen_by_any_file_that_makes_it_a_model(models: Path, name: str, place: str) -> None:
    folder = LocalFolder(models)
    (models / place).mkdir(parents=True)
    (models / place / "tokenizer_config.json").write_text("{}")
    before = folder.stamp()
    (models / place / name).write_text("{}")
    assert folder.stamp() != before
    assert place in [config.id for config in folder.weights()]
