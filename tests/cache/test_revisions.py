"""The commit weights are at: the local cache's first, then the Hub's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sie_core.cache.hub.revisions import is_commit, resolve_revision
from sie_core.cache.hub.tier import ask_commit
from sie_core.contracts import ModelLoadError, WeightRequest
from sie_core.settings import Settings

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    def make(**values: Any) -> Settings:
        return Settings(**{"local_cache": tmp_path / "cache", **values})

    return make


@pytest.fixture
def to_the_hub(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Send the Hub's client to the server that plays the Hub."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    return hub


def test_a_whole_snapshot_of_the_cache_names_its_commit_without_the_network(
    cached: Callable[..., Path], settings: Callable[..., Settings], hub: Any
) -> None:
    cached("org/m", commit=OTHER)
    assert resolve_revision(WeightRequest("org/m"), settings()) == (OTHER, "local")
    assert resolve_revision(WeightRequest("org/m", OTHER), settings(hf_fallback=False)) == (OTHER, "local")
    assert hub.asked == []


def test_what_the_cache_has_not_is_asked_of_the_hub_and_not_downloaded(
    settings: Callable[..., Settings], to_the_hub: Any
) -> None:
    assert resolve_revision(WeightRequest("org/m"), settings()) == (COMMIT, "hub")
    assert [asked for asked in to_the_hub.asked if "org/m" in asked] == ["GET /api/models/org/m"]


def test_a_snapshot_that_lacks_a_file_is_not_what_a_load_would_get(
    cached: Callable[..., Path], settings: Callable[..., Settings]
) -> None:
    (cached("org/m", commit=OTHER) / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"no whole snapshot of org/m at main.*SIE_HF_FALLBACK=false"):
        resolve_revision(WeightRequest("org/m"), settings(hf_fallback=False))


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (WeightRequest("org/none"), "no repository org/none"),
        (WeightRequest("org/m", "v9"), "org/m has no revision v9"),
    ],
)
def test_what_the_hub_does_not_know_is_said_as_for_a_load(hub: Any, request_: WeightRequest, said: str) -> None:
    with pytest.raises(ModelLoadError, match=said) as raised:
        ask_commit(request_, hub.url)
    assert raised.value.failure == "NOT_FOUND"
    assert hub.url not in str(raised.value)


@pytest.mark.parametrize("revision", [None, "main", COMMIT[:12], COMMIT.upper(), f"{COMMIT}0"])
def test_only_a_whole_hash_is_a_commit(revision: str | None) -> None:
    assert is_commit(COMMIT)
    assert not is_commit(revision)
