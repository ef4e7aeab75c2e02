"""Pulls from the Hub: two processes at once, too many requests, disks that are full or read-only, progress."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from sie_core.cache import DiskCache, DiskLimits, HubTier, LocalTier, WeightChain
from sie_core.cache.disk.cache import PULLS_AT_ONCE
from sie_core.cache.hub.retries import HubRetries
from sie_core.contracts import ModelLoadError, WeightRequest
from tests.cache.conftest import make_read_only
from tests.cache.fake_hub import COMMIT, FILES, FakeHub

REQUEST = WeightRequest("org/m")
LIMITED = 429, {"Retry-After": "7"}


def files_of(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def partial_files(cache: Path) -> list[Path]:
    return list(cache.rglob("*.incomplete"))


def test_two_processes_that_pull_one_model_download_it_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/m"]["model.safetensors"] = save({"weight": np.ones(2**20, np.float32)})
    script = (
        "import sys; from pathlib import Path; from sie_core.cache import *; from sie_core.contracts import *;"
        "cache = DiskCache(Path(sys.argv[1]));"
        "print(WeightChain([LocalTier(cache), HubTier(cache, sys.argv[2])], cache).fetch(WeightRequest('org/m')))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), hub.url]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    both = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0] == told[1]
    assert files_of(Path(told[0]))["model.safetensors"] == hub.files["org/m"]["model.safetensors"]
    assert sum(asked.startswith("GET") and asked.endswith("model.safetensors") for asked in hub.asked) == 1
    assert partial_files(tmp_path) == []


def test_a_branch_is_found_again_without_the_network(hub: FakeHub, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    folder = HubTier(cache, hub.url).fetch(REQUEST)
    assert (cache.folder / "models--org--m/refs/main").read_text() == COMMIT
    assert LocalTier(cache).fetch(REQUEST) == folder


def test_a_hub_that_asks_for_a_pause_gets_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.failures = [LIMITED, (503, {}), (429, {"RateLimit": '"api";r=0;t=9'})]
    pauses: list[float] = []
    tier = HubTier(tmp_path / "cache", hub.url, HubRetries(sleep=pauses.append))
    assert tier.fetch(REQUEST) is not None
    assert pauses[0] == 7
    assert 0 < pauses[1] <= 2
    assert pauses[2] == 9


def test_a_pause_beyond_the_budget_is_a_network_error_that_names_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.failure = 429, {"Retry-After": "3600"}
    pauses: list[float] = []
    with pytest.raises(ModelLoadError, match=r"429.*left alone for 3600 s.*HF_TOKEN") as raised:
        HubTier(tmp_path / "cache", hub.url, HubRetries(sleep=pauses.append)).fetch(REQUEST)
    assert raised.value.failure == "NETWORK"
    assert pauses == []


def test_a_long_pause_asked_for_in_the_middle_of_a_download_is_not_slept_through(hub: FakeHub, tmp_path: Path) -> None:
    hub.refused["model.safetensors"] = 429, {"Retry-After": "3600"}
    tier = HubTier(tmp_path / "cache", hub.url)
    with pytest.raises(ModelLoadError, match=r"429.*left alone for 3600 s") as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "NETWORK"
    hub.refused.clear()
    assert tier.fetch(REQUEST) is not None


def test_all_pauses_together_stay_within_the_budget(hub: FakeHub, tmp_path: Path) -> None:
    hub.failure = LIMITED
    pauses: list[float] = []
    with pytest.raises(ModelLoadError, match="429"):
        HubTier(tmp_path / "cache", hub.url, HubRetries(sleep=pauses.append)).fetch(REQUEST)
    assert pauses == [7] * 8, "of 60 s"


def test_a_download_that_does_not_fit_is_refused_before_it_begins(
    hub: FakeHub, tmp_path: Path, disk: Callable[[str], Path]
) -> None:
    hub.files["org/m"]["model.safetensors"] = bytes(3 * 2**20)
    with pytest.raises(ModelLoadError, match=r"needs 3\.1 MB.*SIE_LOCAL_CACHE") as raised:
        HubTier(disk("1m"), hub.url).fetch(REQUEST)
    assert raised.value.failure == "STORAGE"
    assert not any("/resolve/" in asked for asked in hub.asked)


def test_a_disk_that_fills_up_on_the_way_is_a_storage_error_and_leaves_no_half_file(
    hub: FakeHub, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files["org/m"]["model.safetensors"] = save({"weight": np.ones(2**19, np.float32)})
    monkeypatch.setattr(DiskCache, "make_room", lambda *_: None)  # another program takes the room just then
    folder = disk("1m")
    tier = HubTier(folder, hub.url)
    with pytest.raises(ModelLoadError, match=r"No space left on device.*sie cache prune") as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "STORAGE"
    assert partial_files(folder) == []
    with contextlib.suppress(ModelLoadError):
        assert LocalTier(folder).fetch(REQUEST) is None, "half of it is nothing"


def test_a_read_only_cache_is_a_storage_error_that_names_the_setting(hub: FakeHub, disk: Callable[[str], Path]) -> None:
    folder = disk("1m")
    make_read_only(folder)
    with pytest.raises(ModelLoadError, match=r"Read-only file system.*SIE_LOCAL_CACHE") as raised:
        HubTier(folder, hub.url).fetch(REQUEST)
    assert raised.value.failure == "STORAGE"


def test_progress_is_told_up_to_the_last_byte(hub: FakeHub, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    HubTier(tmp_path / "cache", hub.url).fetch(WeightRequest("org/m", progress=lambda *each: told.append(each)))
    wanted = ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt")
    size = sum(len(hub.files["org/m"][name]) for name in wanted)
    assert told[-1] == (size, size)


def test_a_second_pull_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    with cache.pulling("org/m"), pytest.raises(ModelLoadError) as raised, cache.pulling("org/m", wait_s=0.1):
        pass
    assert raised.value.failure == "TIMEOUT"
    with cache.pulling("org/m", wait_s=0.1):
        pass


def test_a_few_pull_at_once(tmp_path: Path) -> None:
    cache, together = DiskCache(tmp_path / "cache"), threading.Barrier(PULLS_AT_ONCE)
    at_work: list[int] = []
    seen: list[int] = []

    def pull(number: int) -> None:
        with cache.pulling(f"org/m{number}"):
            at_work.append(number)
            together.wait(30)
            seen.append(len(at_work))
            together.wait(30)
            at_work.remove(number)

    with ThreadPoolExecutor(2 * PULLS_AT_ONCE) as threads:
        list(threads.map(pull, range(2 * PULLS_AT_ONCE)))
    assert max(seen) == PULLS_AT_ONCE


def test_pulls_that_wait_for_another_process_hold_up_no_others(tmp_path: Path) -> None:
    cache, started = DiskCache(tmp_path / "cache"), threading.Barrier(PULLS_AT_ONCE + 1)

    def pull() -> None:
        started.wait(30)
        with cache.pulling("org/m", wait_s=30):
            pass

    with ThreadPoolExecutor(PULLS_AT_ONCE + 1) as threads:
        with DiskCache(cache.folder).pulling("org/m"):
            waiting = [threads.submit(pull) for _ in range(PULLS_AT_ONCE)]
            started.wait(30)
            with cache.pulling("org/other"):
                assert not any(each.done() for each in waiting)
        assert [each.result(30) for each in waiting] == [None] * PULLS_AT_ONCE


def test_weights_that_a_chain_gives_are_held_even_where_it_made_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    with WeightChain([HubTier(cache, hub.url)], cache).hold(REQUEST):
        assert cache.in_use("org/m")
    assert not cache.in_use("org/m")


def test_a_damaged_file_is_replaced_within_a_limit_that_holds_the_model_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/m"]["model.safetensors"] = large = save({"weight": np.ones(2**18, np.float32)})
    cache = DiskCache(tmp_path / "cache", DiskLimits(max_bytes=int(1.5 * len(large))), dedicated=True)
    chain = WeightChain([LocalTier(cache), HubTier(cache, hub.url)], cache)
    folder = chain.fetch(REQUEST)
    (folder / "config.json").resolve().write_bytes(b"[]")
    assert chain.fetch(REQUEST) == folder
    assert files_of(folder)["config.json"] == hub.files["org/m"]["config.json"]


def test_pulls_at_once_leave_the_cache_within_its_limit(hub: FakeHub, tmp_path: Path) -> None:
    large = save({"weight": np.ones(2**18, np.float32)})
    names = [f"org/{letter}" for letter in "abcd"]
    hub.files.update({name: {**FILES, "model.safetensors": large} for name in names})
    limit = int(2.5 * len(large))
    cache = DiskCache(tmp_path / "cache", DiskLimits(max_bytes=limit), dedicated=True)
    tier = HubTier(cache, hub.url)

    def pull(name: str) -> str:
        try:
            return "pulled" if tier.fetch(WeightRequest(name)) else "passed over"
        except ModelLoadError as error:
            return error.failure

    with ThreadPoolExecutor(len(names)) as threads:
        outcomes = list(threads.map(pull, names))
    # Who comes while two others are being pulled finds no room, and is told so.
    assert set(outcomes) <= {"pulled", "STORAGE"}
    assert outcomes.count("pulled") >= 2
    assert 0 < sum(each.size for each in cache.repositories()) <= limit


def test_what_a_process_pulled_that_was_killed_may_still_be_removed(hub: FakeHub, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    script = (
        "import sys; from pathlib import Path; from sie_core.cache import DiskCache\n"
        "with DiskCache(Path(sys.argv[1])).pulling('org/m'): print('pulling', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(cache.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "pulling\n"
        other.kill()
    HubTier(cache, hub.url).fetch(REQUEST)
    assert [(each.repo_id, each.removable) for each in cache.repositories()] == [("org/m", True)]


def test_a_pull_that_got_nothing_leaves_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    with pytest.raises(ConnectionError), cache.pulling("org/m"):
        raise ConnectionError
    assert cache.repositories() == []


def test_a_part_of_a_download_is_told_from_the_whole_by_any_client_of_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    """Older clients keep no list of a commit's files, and a vocabulary is named by no other file."""
    hub.refused = {"vocab.txt": (403, {})}
    cache = DiskCache(tmp_path / "cache")
    tiers = [LocalTier(cache), HubTier(cache, hub.url)]
    with pytest.raises(ModelLoadError):
        tiers[1].fetch(REQUEST)
    shutil.rmtree(cache.folder / "models--org--m/trees")
    with pytest.raises(ModelLoadError, match=r"vocab\.txt"):
        tiers[0].fetch(WeightRequest("org/m", COMMIT))
    hub.refused = {}
    assert "vocab.txt" in files_of(WeightChain(tiers, cache).fetch(REQUEST))
