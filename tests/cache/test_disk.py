"""The local cache on its disk: what goes first, what never does, and what others see of a removal."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.cache import DiskCache, DiskLimits, LocalTier, WeightChain
from sie_core.cache.disk.cache import disk_cache
from sie_core.cache.disk.hub_layout import repo_folder
from sie_core.contracts import ModelLoadError, WeightRequest
from sie_core.settings import Settings

MB = 2**20
Write = Callable[..., Path]


@pytest.fixture
def fill(cached: Write, tmp_path: Path) -> Callable[..., DiskCache]:
    """Make a cache of repositories of 1 MB each, used in the order of their names."""

    def make(*names: str, folder: Path = tmp_path / "cache", **options: object) -> DiskCache:
        cache = DiskCache(folder, **{"limits": DiskLimits(), "dedicated": True, **options})  # type: ignore[arg-type]
        for place, name in enumerate(names):
            cached(name, cache=folder, **{"model.safetensors": os.urandom(MB)})
            lease = cache.use(name)
            assert lease is not None
            lease.release()
            os.utime(cache.locks.folder / f"models--{name.replace('/', '--')}.lease", (2e9 + place, 2e9 + place))
        return cache

    return make


def held(cache: DiskCache) -> list[str]:
    return [each.repo_id for each in cache.repositories()]


def test_the_longest_unused_goes_first_until_the_rest_is_within_the_limit(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/b", "org/c", "org/a")
    removed = cache.shrink(DiskLimits(max_bytes=int(2.5 * MB)))
    assert [each.repo_id for each in removed] == ["org/b"]
    assert held(cache) == ["org/a", "org/c"]


def test_using_a_repository_makes_it_the_last_to_go(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a", "org/b")
    lease = cache.use("org/a")
    assert lease is not None
    lease.release()
    os.utime(cache.locks.folder / "models--org--a.lease", (3e9, 3e9))
    cache.shrink(DiskLimits(max_bytes=MB + 1000))
    assert held(cache) == ["org/a"]


def test_room_is_made_for_what_is_to_come(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a", "org/b", limits=DiskLimits(max_bytes=3 * MB))
    cache.make_room("org/new", int(1.5 * MB))
    assert held(cache) == ["org/b"]


def test_what_is_held_in_this_process_stays(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a", "org/b")
    chain = WeightChain([LocalTier(cache)], cache)
    with chain.hold(WeightRequest("org/a")) as weights:
        cache.shrink(DiskLimits(max_bytes=1))
        assert held(cache) == ["org/a"]
        assert (weights.folder / "model.safetensors").stat().st_size == MB
        assert cache.in_use("org/a")
    cache.shrink(DiskLimits(max_bytes=1))
    assert held(cache) == []


def test_weights_that_are_forgotten_are_no_longer_in_use(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a")
    weights = WeightChain([LocalTier(cache)], cache).hold(WeightRequest("org/a"))
    assert cache.in_use("org/a")
    del weights
    assert not cache.in_use("org/a")


def test_what_another_process_holds_stays_until_it_ends(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a", "org/b")
    script = (
        "import sys; from pathlib import Path; from sie_core.cache import DiskCache;"
        "lease = DiskCache(Path(sys.argv[1])).use('org/a'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(cache.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        cache.shrink(DiskLimits(max_bytes=1))
        assert held(cache) == ["org/a"]
        other.kill()
    cache.shrink(DiskLimits(max_bytes=1))
    assert held(cache) == []


def test_who_has_mapped_a_removed_file_keeps_it(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a")
    (snapshot,) = (repo_folder(cache.folder, "org/a") / "snapshots").iterdir()
    file = snapshot / "model.safetensors"
    before = file.read_bytes()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert cache.remove("org/a")
        assert not file.exists()
        assert mapped[:] == before


def test_in_a_folder_shared_with_other_tools_only_what_sie_stored_goes(
    fill: Callable[..., DiskCache], cached: Write
) -> None:
    cache = fill("org/theirs", dedicated=False)
    with cache.pulling("org/ours"):
        cached("org/ours", cache=cache.folder)
    cache.shrink(DiskLimits(max_bytes=1))
    assert held(cache) == ["org/theirs"]


def test_a_repository_of_other_tools_that_sie_adds_to_stays_theirs(
    fill: Callable[..., DiskCache], cached: Write
) -> None:
    cache = fill("org/theirs", dedicated=False)
    with cache.pulling("org/theirs"):
        cached("org/theirs", commit="f" * 40, ref="v2", cache=cache.folder)
    assert not any(each.removable for each in cache.repositories())


def test_a_limit_that_nothing_can_be_removed_for_refuses_and_names_it(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a", limits=DiskLimits(max_bytes=2 * MB))
    lease = cache.use("org/a")
    with pytest.raises(ModelLoadError, match=r"org/new needs 1\.6 MB.*SIE_DISK_CACHE_MAX_BYTES") as raised:
        cache.make_room("org/new", int(1.5 * MB))
    assert raised.value.failure == "STORAGE"
    assert lease is not None


def test_a_disk_above_the_threshold_makes_room(fill: Callable[..., DiskCache], disk: Callable[[str], Path]) -> None:
    cache = fill("org/a", "org/b", "org/c", folder=disk("10m"))
    cache.shrink(DiskLimits(percent=85))
    assert len(held(cache)) == 3, "30 % is below 85 %"
    (cache.folder / "other").write_bytes(bytes(6 * MB))
    cache.shrink(DiskLimits(percent=85))
    assert held(cache) == ["org/b", "org/c"]


def test_what_does_not_fit_on_the_disk_is_refused_before_anything_is_written(
    fill: Callable[..., DiskCache], disk: Callable[[str], Path]
) -> None:
    cache = fill("org/a", folder=disk("4m"), limits=None)
    with pytest.raises(ModelLoadError, match=r"needs 9\.0 MB and the disk .* has .* free.*SIE_LOCAL_CACHE") as raised:
        cache.make_room("org/new", 9_000_000)
    assert raised.value.failure == "STORAGE"
    assert held(cache) == ["org/a"], "without limits nothing is removed"


def test_what_a_process_left_that_died_while_removing_is_finished(fill: Callable[..., DiskCache]) -> None:
    cache = fill("org/a")
    left = cache.locks.folder / "trash" / "left"
    (left / "blobs").mkdir(parents=True)
    cache.shrink(DiskLimits())
    assert not left.exists()


def test_the_settings_say_how_full_the_cache_may_get(tmp_path: Path) -> None:
    cache = disk_cache(Settings(local_cache=tmp_path, disk_cache_max_bytes=5))
    assert (cache.limits, cache.dedicated) == (DiskLimits(85.0, 5), True)
    assert disk_cache(Settings(local_cache=tmp_path, disk_cache_enabled=False)).limits is None
    assert not disk_cache(Settings()).dedicated
