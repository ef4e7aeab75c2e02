"""Weights by way of a real S3 gateway: filled after a Hub download, pulled by machines without the Hub, never wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sie_objectstore.store import BucketStore

from sie_core.cache import ClusterTier, DiskCache, DiskLimits, HubTier, LocalTier, WeightChain
from sie_core.cache.store import layout
from sie_core.contracts import ModelLoadError, WeightRequest
from tests.cache.fake_hub import COMMIT, FILES, TENSORS, FakeHub
from tests.objectstore.conftest import Impatient
from tests.objectstore.proxy import Faults

REQUEST = WeightRequest("org/m")
LARGE = save({"weight": np.arange(2**16, dtype=np.float32)})
SERVED = {name: FILES[name] for name in ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt")}


def machine(folder: Path, store: BucketStore, hub: FakeHub | None = None, *, fills: bool = False) -> WeightChain:
    """Make the chain of a machine with a cache of its own."""
    cache = DiskCache(folder, DiskLimits(percent=100), dedicated=True)
    tiers = [LocalTier(cache), ClusterTier(store, cache, fills=fills)]
    return WeightChain([*tiers, *([HubTier(cache, hub.url)] if hub else [])], cache)


def files_of(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def refusal(chain: WeightChain, request: WeightRequest = REQUEST) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as raised:
        chain.fetch(request)
    assert "127.0.0.1" not in str(raised.value)
    assert chain.find(request) is None, "nothing of a failed pull is seen"
    return raised.value


@pytest.fixture
def filled(store: BucketStore, hub: FakeHub, tmp_path: Path) -> BucketStore:
    """A store with `org/m`, whose weights are large enough to be cut."""
    hub.files["org/m"]["model.safetensors"] = LARGE
    chain = machine(tmp_path / "filler", store, hub, fills=True)
    chain.fetch(REQUEST)
    chain.wait_for_fills()
    return store


def test_what_the_hub_gave_serves_a_machine_without_the_hub(store: BucketStore, hub: FakeHub, tmp_path: Path) -> None:
    first = machine(tmp_path / "one", store, hub, fills=True)
    given = first.fetch(REQUEST)
    first.wait_for_fills()
    second = machine(tmp_path / "two", store)
    folder = second.fetch(REQUEST)
    assert files_of(folder) == files_of(given) == SERVED
    assert folder.name == COMMIT
    assert second.fetch(WeightRequest("org/m", COMMIT)) == folder
    assert second.find(REQUEST) == ("local", folder)
    assert {each.key for each in store.list("")} == {
        "models/org/m/refs/main",
        f"models/org/m/{COMMIT}/manifest.json",
        *(f"models/org/m/{COMMIT}/files/{name}" for name in SERVED),
    }


def test_nothing_is_stored_unless_it_is_allowed(store: BucketStore, hub: FakeHub, tmp_path: Path) -> None:
    chain = machine(tmp_path / "one", store, hub)
    chain.fetch(REQUEST)
    chain.wait_for_fills()
    assert list(store.list("")) == []


def test_a_fill_that_broke_off_is_not_seen_and_done_again(store: BucketStore, hub: FakeHub, tmp_path: Path) -> None:
    first = machine(tmp_path / "one", store, hub, fills=True)
    folder = first.fetch(REQUEST)
    first.wait_for_fills()
    store.delete(layout.manifest_key("org/m", COMMIT))
    assert refusal(machine(tmp_path / "two", store)).failure == "NOT_FOUND"
    assert first.fill(REQUEST, folder) == ["cluster"]
    assert first.fill(REQUEST, folder) == [], "it has them"
    assert files_of(machine(tmp_path / "three", store).fetch(REQUEST)) == SERVED


def test_half_of_the_requests_may_fail(filled: BucketStore, proxy: Faults, tmp_path: Path) -> None:
    proxy.every_other_fails = True
    folder = machine(tmp_path / "two", filled).fetch(REQUEST)
    assert files_of(folder) == {**SERVED, "model.safetensors": LARGE}
    assert proxy.failed >= 3


def test_an_answer_cut_in_the_middle_of_a_file_is_asked_for_again(
    filled: BucketStore, proxy: Faults, tmp_path: Path
) -> None:
    proxy.cut_firsts = True
    folder = machine(tmp_path / "two", filled).fetch(REQUEST)
    assert (folder / "model.safetensors").read_bytes() == LARGE
    assert len(proxy.broken_off) == 1


def test_a_store_that_always_cuts_leaves_nothing_behind_and_recovers(
    filled: BucketStore, proxy: Faults, tmp_path: Path, impatient: Impatient
) -> None:
    proxy.cut = True
    chain = machine(tmp_path / "two", impatient(filled.url))
    assert refusal(chain).failure == "NETWORK"
    assert list(tmp_path.rglob("two/**/*.incomplete")) == []
    proxy.cut = False
    assert (chain.fetch(REQUEST) / "model.safetensors").read_bytes() == LARGE


def test_a_store_that_is_gone_is_a_network_error_and_recovers(
    filled: BucketStore, proxy: Faults, tmp_path: Path, impatient: Impatient
) -> None:
    chain = machine(tmp_path / "two", impatient(filled.url))
    proxy.gone = True
    error = refusal(chain)
    assert error.failure == "NETWORK"
    assert filled.url in str(error)
    assert "AWS_ENDPOINT_URL" in str(error)
    proxy.gone = False
    assert (chain.fetch(REQUEST) / "model.safetensors").read_bytes() == LARGE


def test_refused_credentials_are_for_the_operator(
    filled: BucketStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    error = refusal(machine(tmp_path / "two", BucketStore(bucket)))
    assert error.failure == "CONFIG"
    assert "AWS_SECRET_ACCESS_KEY" in str(error)


@pytest.mark.parametrize("content", [LARGE[:-1] + b"\1", LARGE[:-4], b""], ids=["tampered", "truncated", "empty"])
def test_a_wrong_file_in_the_store_is_never_served(
    filled: BucketStore, hub: FakeHub, tmp_path: Path, content: bytes
) -> None:
    filled.write(layout.file_key("org/m", COMMIT, "model.safetensors"), content)
    assert refusal(machine(tmp_path / "two", filled)).failure == "CORRUPT"
    folder = machine(tmp_path / "three", filled, hub).fetch(REQUEST)
    assert (folder / "model.safetensors").read_bytes() == LARGE, "the Hub has the right one"


@pytest.mark.parametrize(
    "change",
    [
        {"repo_id": "org/other"},
        {"format": 2},
        {"files": {"../../../escaped.json": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"/etc/escaped.json": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"pytorch_model.bin": {"size": 1, "sha256": "0" * 64}}},
        {"files": {"config.json": {"size": -1, "sha256": "0" * 64}}},
        {"files": {"config.json": {"size": 1, "sha256": "../x"}}},
        {"files": []},
    ],
)
def test_a_manifest_that_lies_is_refused(filled: BucketStore, tmp_path: Path, change: dict[str, object]) -> None:
    key = layout.manifest_key("org/m", COMMIT)
    filled.write(key, json.dumps({**json.loads(filled.read(key)), **change}).encode())
    error = refusal(machine(tmp_path / "two", filled))
    assert error.failure == "CORRUPT"
    assert "manifest" in str(error)


def test_the_store_replaces_a_damaged_file_of_the_local_cache(filled: BucketStore, tmp_path: Path) -> None:
    chain = machine(tmp_path / "two", filled)
    folder = chain.fetch(REQUEST)
    weights = (folder / "model.safetensors").resolve()
    weights.write_bytes(LARGE[:-1] + b"\1")
    with pytest.raises(ModelLoadError) as raised:
        WeightChain(chain.tiers[:1], chain.cache).fetch(REQUEST)
    assert raised.value.failure == "CORRUPT"
    assert chain.fetch(REQUEST) == folder
    assert (folder / "model.safetensors").read_bytes() == LARGE


def test_a_lora_repository_passes_through_the_same_tiers(store: BucketStore, hub: FakeHub, tmp_path: Path) -> None:
    files = {"adapter_config.json": b'{"peft_type": "LORA"}', "adapter_model.safetensors": TENSORS}
    hub.files["org/lora"] = files
    first = machine(tmp_path / "one", store, hub, fills=True)
    first.fetch(WeightRequest("org/lora"))
    first.wait_for_fills()
    assert files_of(machine(tmp_path / "two", store).fetch(WeightRequest("org/lora"))) == files


def test_two_processes_that_pull_one_model_download_it_once(filled: BucketStore, proxy: Faults, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from sie_core.cache import *; from sie_core.contracts import *;"
        "from sie_objectstore.store import BucketStore; cache = DiskCache(Path(sys.argv[1]));"
        "chain = WeightChain([LocalTier(cache), ClusterTier(BucketStore(sys.argv[2]), cache)], cache);"
        "print(chain.fetch(WeightRequest('org/m')))"
    )
    proxy.asked.clear()
    command = [sys.executable, "-c", script, str(tmp_path / "two"), filled.url]
    both = [subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0] == told[1]
    assert (Path(told[0]) / "model.safetensors").read_bytes() == LARGE
    assert sum("model.safetensors bytes=" in asked for asked in proxy.asked) == 1


def test_progress_is_told_up_to_the_last_byte(filled: BucketStore, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    machine(tmp_path / "two", filled).fetch(WeightRequest("org/m", progress=lambda *each: told.append(each)))
    size = len(LARGE) + sum(len(SERVED[name]) for name in SERVED if name != "model.safetensors")
    assert told[-1] == (size, size)


def test_files_of_another_format_join_those_of_the_commit(store: BucketStore, hub: FakeHub, tmp_path: Path) -> None:
    onnx = WeightRequest("org/m", weights=("*.onnx",))
    first = machine(tmp_path / "one", store, hub, fills=True)
    first.fetch(REQUEST)
    first.wait_for_fills()
    assert "its copy has no *.onnx" in str(refusal(machine(tmp_path / "two", store), onnx))
    first.fetch(onnx)
    first.wait_for_fills()
    assert files_of(machine(tmp_path / "three", store).fetch(onnx)) == {**SERVED, "onnx/model.onnx": b"graph"}


@pytest.mark.parametrize(
    "request_", [WeightRequest("../../x"), WeightRequest("org/m", "../../../x"), WeightRequest("org/..")]
)
def test_ids_and_revisions_stay_inside_their_folders(
    filled: BucketStore, proxy: Faults, tmp_path: Path, request_: WeightRequest
) -> None:
    proxy.asked.clear()
    with pytest.raises(ModelLoadError) as raised:
        machine(tmp_path / "two", filled).fetch(request_)
    assert raised.value.failure == "NOT_FOUND"
    assert proxy.asked == []
