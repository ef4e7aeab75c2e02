"""Truncated and tampered weights: found before they are served, and put right by a tier that has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.cache import DiskCache, HubTier, LocalTier, WeightChain, fetch_weights
from sie_core.cache.disk.proofs import Proofs, expectations, read_record
from sie_core.contracts import ModelConfig, ModelLoadError, WeightRequest
from tests.cache.conftest import make_read_only
from tests.cache.fake_hub import TENSORS, FakeHub

Write = Callable[..., Path]
REQUEST = WeightRequest("org/m")


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4)


def tamper(file: Path) -> None:
    """Flip a bit of the last tensor and set size and time back."""
    state = file.stat()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))


DAMAGES = pytest.mark.parametrize("damage", [truncate, tamper])


def refusal(tier: LocalTier) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as raised:
        tier.fetch(REQUEST)
    assert str(tier.cache.folder) not in str(raised.value)
    return raised.value


@DAMAGES
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("served", [False, True])
def test_a_damaged_file_is_corrupt_whether_or_not_it_was_served_before(
    cached: Write, tmp_path: Path, damage: Callable[[Path], None], name: str, served: bool
) -> None:
    snapshot = cached()
    if served:
        assert LocalTier(tmp_path / "cache").fetch(REQUEST) == snapshot
    damage((snapshot / name).resolve())
    error = refusal(LocalTier(tmp_path / "cache"))
    assert error.failure == "CORRUPT"
    assert name in str(error)
    assert "sie cache prune org/m" in str(error)


@DAMAGES
def test_the_hub_replaces_only_the_damaged_file(hub: FakeHub, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    cache = DiskCache(tmp_path / "cache")
    chain = WeightChain([LocalTier(cache), HubTier(cache, hub.url)], cache)
    folder = chain.fetch(REQUEST)
    hub.asked.clear()
    with (folder / "model.safetensors").open("rb") as reader:
        damage((folder / "model.safetensors").resolve())
        broken = reader.read()
        assert chain.fetch(REQUEST) == folder
        reader.seek(0)
        assert reader.read() == broken, "who had it open is not disturbed"
    assert (folder / "model.safetensors").read_bytes() == TENSORS
    assert {asked.rpartition("/")[2] for asked in hub.asked if "GET" in asked and "resolve" in asked} == {
        "model.safetensors"
    }


def test_what_the_hub_sends_is_checked_too(hub: FakeHub, tmp_path: Path) -> None:
    hub.tampered["model.safetensors"] = TENSORS[:-1] + b"\1"
    tier = HubTier(tmp_path / "cache", hub.url)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors of org/m") as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "CORRUPT"
    hub.tampered.clear()
    folder = tier.fetch(REQUEST)
    assert folder is not None
    assert (folder / "model.safetensors").read_bytes() == TENSORS


def test_a_file_is_hashed_once_even_by_another_process(cached: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = cached()
    assert Proofs().faults(snapshot) == {}
    hashed: list[Path] = []
    monkeypatch.setattr("sie_core.cache.disk.proofs.digest", lambda file, like: hashed.append(file))
    assert Proofs().faults(snapshot) == {}
    assert hashed == []
    assert Proofs().faults(snapshot, again=True) != {}, "asked to, it hashes again"


def test_a_record_that_cannot_be_read_proves_nothing(cached: Write) -> None:
    snapshot = cached()
    assert Proofs().faults(snapshot) == {}
    record = snapshot.parent.parent / ".sie" / f"{snapshot.name}.json"
    for content in (b"{", b"[]", b'{"files": 3, "proved": []}'):
        record.write_bytes(content)
        assert read_record(snapshot).proved is None
        tamper((snapshot / "model.safetensors").resolve())
        assert set(Proofs().faults(snapshot)) == {"model.safetensors"}
        tamper((snapshot / "model.safetensors").resolve())


def test_a_read_only_cache_serves_and_finds_damage(
    cached: Write, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = disk("2m")
    whole, damaged = cached(cache=folder), cached("org/bad", cache=folder)
    tamper((damaged / "model.safetensors").resolve())
    make_read_only(folder)
    cache = DiskCache(folder)
    chain = WeightChain([LocalTier(cache)], cache)
    assert chain.fetch(REQUEST) == whole
    with pytest.raises(ModelLoadError) as raised:
        chain.fetch(WeightRequest("org/bad"))
    assert raised.value.failure == "CORRUPT"
    monkeypatch.setattr("sie_core.cache.disk.proofs.digest", None)
    assert chain.fetch(REQUEST) == whole, "what cannot be noted down is remembered"


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, TENSORS[:-1], TENSORS + b"\0", b"\x02" + bytes(7) + b"{}" + bytes(3)]
)
def test_a_safetensors_file_nobody_knows_the_hash_of_is_held_to_its_header(cached: Write, content: bytes) -> None:
    snapshot = cached()
    file = snapshot / "model.safetensors"
    file.unlink()
    file.write_bytes(TENSORS)
    assert expectations(snapshot)["model.safetensors"].digest is None
    assert Proofs().faults(snapshot) == {}
    file.write_bytes(content)
    assert set(Proofs().faults(snapshot)) == {"model.safetensors"}


def test_a_weights_path_with_a_cut_file_is_corrupt(cached: Write) -> None:
    folder = cached()
    truncate((folder / "model.safetensors").resolve())
    with pytest.raises(ModelLoadError, match=r"model\.safetensors in the `weights_path` of m has \d+ bytes") as raised:
        fetch_weights(ModelConfig("m", weights_path=str(folder)), WeightChain([]))
    assert raised.value.failure == "CORRUPT"
