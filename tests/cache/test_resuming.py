"""A download that was interrupted goes on where it stopped, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import save

from sie_core.cache import DiskCache, HubTier
from sie_core.cache.hub.retries import HubRetries
from sie_core.contracts import ModelLoadError, WeightRequest
from tests.cache.fake_hub import FakeHub, blob_name

REQUEST = WeightRequest("org/m")
NAME = "model.safetensors"
LARGE = save({"weight": np.arange(2**18, dtype=np.float32)})
HALF = len(LARGE) // 2


@pytest.fixture
def tier(hub: FakeHub, tmp_path: Path) -> HubTier:
    hub.files["org/m"][NAME] = LARGE
    return HubTier(tmp_path / "cache", hub.url, HubRetries(budget_s=0))


def interrupt(hub: FakeHub, tier: HubTier) -> Path:
    """Pull until half of the weights has come; give what is left of them."""
    hub.cut = NAME
    with pytest.raises(ModelLoadError) as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "NETWORK"
    hub.cut = None
    hub.parts.clear()
    (partial,) = tier.cache.folder.rglob("*.incomplete")
    assert partial.stat().st_size == HALF
    return partial


def assert_whole(folder: Path | None) -> None:
    assert folder is not None
    assert (folder / NAME).read_bytes() == LARGE
    assert list(folder.parents[1].rglob("*.incomplete")) == []


def test_a_second_pull_asks_for_the_rest_alone(hub: FakeHub, tier: HubTier) -> None:
    interrupt(hub, tier)
    assert_whole(tier.fetch(REQUEST))
    assert [part for part in hub.parts if NAME in part] == [f"{NAME} bytes={HALF}-"]


def test_a_connection_that_breaks_goes_on_within_one_pull(hub: FakeHub, tier: HubTier) -> None:
    hub.cut = NAME

    def mend(pause: float) -> None:
        hub.cut = None

    patient = HubTier(tier.cache, hub.url, HubRetries(sleep=mend))
    assert_whole(patient.fetch(REQUEST))
    assert [part for part in hub.parts if NAME in part] == [NAME, f"{NAME} bytes={HALF}-"]


def test_a_process_that_is_killed_leaves_what_the_next_goes_on_with(hub: FakeHub, tier: HubTier) -> None:
    hub.cut = NAME
    script = (
        "import os, signal, sys; from pathlib import Path; from sie_core.cache import HubTier\n"
        "from sie_core.cache.hub.retries import HubRetries; from sie_core.contracts import WeightRequest\n"
        "die = lambda pause: os.kill(os.getpid(), signal.SIGKILL)\n"
        "HubTier(Path(sys.argv[1]), sys.argv[2], HubRetries(sleep=die)).fetch(WeightRequest('org/m'))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    command = [sys.executable, "-c", script, str(tier.cache.folder), hub.url]
    assert subprocess.run(command, env=environ, timeout=250).returncode == -9
    hub.cut = None
    hub.parts.clear()
    assert_whole(tier.fetch(REQUEST))
    assert f"{NAME} bytes={HALF}-" in hub.parts


def test_a_hub_that_knows_no_ranges_gives_all_of_it(hub: FakeHub, tier: HubTier) -> None:
    interrupt(hub, tier)
    hub.ranges = False
    assert_whole(tier.fetch(REQUEST))


def test_a_part_that_was_damaged_meanwhile_is_fetched_anew(hub: FakeHub, tier: HubTier) -> None:
    partial = interrupt(hub, tier)
    partial.write_bytes(b"\0" * HALF)
    assert_whole(tier.fetch(REQUEST))
    assert [part for part in hub.parts if NAME in part] == [f"{NAME} bytes={HALF}-", NAME]


@pytest.mark.parametrize("size", [len(LARGE), len(LARGE) + 1])
def test_a_part_that_is_as_long_as_the_whole_needs_no_more_of_it_or_all(hub: FakeHub, tier: HubTier, size: int) -> None:
    interrupt(hub, tier).write_bytes((LARGE + b"\0")[:size])
    assert_whole(tier.fetch(REQUEST))
    assert [part for part in hub.parts if NAME in part] == ([] if size == len(LARGE) else [NAME])


def test_what_came_before_counts_as_progress_and_takes_no_room_twice(hub: FakeHub, tier: HubTier, monkeypatch) -> None:
    interrupt(hub, tier)
    told: list[tuple[int, int]] = []
    wanted: list[int] = []
    make_room = DiskCache.make_room
    monkeypatch.setattr(DiskCache, "make_room", lambda *args: (wanted.append(args[2]), make_room(*args)))
    tier.fetch(WeightRequest("org/m", progress=lambda *each: told.append(each)))
    whole = sum(len(data) for name, data in hub.files["org/m"].items() if name.endswith((".json", ".txt", NAME)))
    assert told[0] == (HALF, whole)
    assert told[-1] == (whole, whole)
    assert wanted == [whole - HALF]


def test_what_clients_of_the_hub_left_is_swept_unless_one_is_at_work_on_it(hub: FakeHub, tier: HubTier) -> None:
    interrupt(hub, tier)
    blobs = tier.cache.folder / "models--org--m/blobs"
    locks = tier.cache.folder / ".locks/models--org--m"
    locks.mkdir(parents=True, exist_ok=True)
    left, busy, unknown = (f"{letter * 64}" for letter in "abc")
    for blob in (left, busy, unknown):
        (blobs / f"{blob}.12ab34cd.incomplete").write_bytes(b"half")
    (locks / f"{left}.lock").touch()
    with FileLock(locks / f"{busy}.lock"):
        assert tier.fetch(REQUEST) is not None
    assert {file.name[0] for file in blobs.glob("*.incomplete")} == {"b", "c"}


def test_a_part_of_a_commit_that_nobody_wants_any_more_is_swept_in_the_end(hub: FakeHub, tier: HubTier) -> None:
    partial = interrupt(hub, tier)
    other = partial.with_name("d" * 64 + ".sie.incomplete")
    other.write_bytes(b"half")
    os.utime(other, (time.time() - 30 * 86400,) * 2)
    assert_whole(tier.fetch(REQUEST))
    assert blob_name(NAME, LARGE) in {file.name for file in partial.parent.iterdir()}
