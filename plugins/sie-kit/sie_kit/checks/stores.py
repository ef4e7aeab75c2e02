"""The checks of object stores, run in a folder of its own of the store at a URL.

A check takes a function that opens the store. One that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import uuid4

from sie_core.contracts import ObjectStore, ObjectStoreError, ObjectStoreFactory
from sie_core.contracts.model.object_stores import StoreFailure
from sie_kit.outcomes import Skipped, bounded

WRITERS = 8
"""Threads that write at once: enough that some meet."""
DATA = bytes(range(256)) * 8


@dataclass(frozen=True, slots=True)
class Place:
    """A registered kind of store, and the URL of one that the checks may write to."""

    factory: ObjectStoreFactory
    url: str | None

    def open(self) -> ObjectStore:
        """Open the store.

        Raises:
            Skipped: No URL is given.
        """
        if self.url is None:
            scheme = self.factory.scheme
            raise Skipped(f'no store is named that may be written to: conformance(…, store_url="{scheme}://…")')
        return self.factory.create(self.url)


@contextmanager
def _bench(place: Place) -> Iterator[tuple[ObjectStore, str]]:
    """Open the store with a folder of its own, which is emptied afterwards."""
    store, folder = place.open(), f"sie-kit-{uuid4().hex}"
    try:
        yield store, folder
    finally:
        for each in list(place.open().list(folder)):
            place.open().delete(each.key)


@contextmanager
def _refused(failure: StoreFailure, what: str) -> Iterator[None]:
    told: Exception | None = None
    try:
        yield
    except Exception as error:
        told = error
    assert told is not None, f"{what} is not refused as {failure}"
    kind = getattr(told, "failure", type(told).__name__)
    assert isinstance(told, ObjectStoreError), f"{what} fails as {kind}, not {failure}: {told}"
    assert kind == failure, f"{what} fails as {kind}, not {failure}: {told}"


def it_is_made_without_asking_and_without_secrets(place: Place) -> None:
    """`create` takes a URL and tells it without credentials; one that it cannot use is a ValueError."""
    scheme = place.factory.scheme
    for wrong in (f"{scheme}://", f"{scheme}:///"):
        try:
            place.factory.create(wrong)
        except (ValueError, ImportError):
            pass
        except Exception as error:
            raise AssertionError(f"create of {wrong!r} raises {type(error).__name__}, no ValueError") from error
    store = place.open()
    assert isinstance(store.url, str), f"url is {store.url!r}, no string"
    parts = urlsplit(store.url)
    assert "@" not in parts.netloc, "url holds credentials, and messages quote it"


def what_is_written_is_read(place: Place) -> None:
    """An object is read as it was written, by another opening of the store too; a second write replaces it."""
    with _bench(place) as (store, folder):
        for key in ("one", "folder/one", "folder/deep/er/one"):
            for data in (DATA, b"", b"second" + DATA):
                store.write(f"{folder}/{key}", data)
                for reader in (store, place.open()):
                    found = reader.read(f"{folder}/{key}")
                    assert found == data, f"{len(data)} bytes were written to {key!r}, and {found[:20]!r}… is read"
                    assert reader.size(f"{folder}/{key}") == len(data), f"size of {key!r} is not {len(data)}"
        keys = ("one", "folder/one", "folder/deep/er/one")
        for number, key in enumerate(keys):
            store.write(f"{folder}/{key}", bytes([number]))
        for number, key in enumerate(keys):
            assert store.read(f"{folder}/{key}") == bytes([number]), f"{key!r} was overwritten by another key"


def what_is_missing_is_said_by_type(place: Place) -> None:
    """A missing object is NOT_FOUND, has no size, and is deleted in silence."""
    with _bench(place) as (store, folder):
        store.write(f"{folder}/there", DATA)
        missing = f"{folder}/missing"
        with _refused("NOT_FOUND", "read of a missing object"):
            store.read(missing)
        with _refused("NOT_FOUND", "read_version of a missing object"):
            store.read_version(missing)
        size = store.size(missing)
        assert size is None, f"size of a missing object is {size!r}, not None"
        for key in (missing, f"{folder}/there", f"{folder}/there"):
            try:
                store.delete(key)
            except Exception as error:
                raise AssertionError(f"delete of a missing object raises {type(error).__name__}: {error}") from error
        assert store.size(f"{folder}/there") is None, "a deleted object is there"


def a_condition_holds(place: Place) -> None:
    """`create` makes what is not there, `replace` replaces the version that it names; else CONFLICT, and no change."""
    with _bench(place) as (store, folder):
        key = f"{folder}/config"
        with _refused("CONFLICT", "replace of a missing object"):
            store.replace(key, b"0", "1")
        first = store.create(key, b"1")
        with _refused("CONFLICT", "create of an object that is there"):
            store.create(key, b"other")
        found = store.read_version(key)
        assert (found.data, found.version) == (b"1", first), f"create told version {first!r}, {found} is read"
        second = store.replace(key, b"2", first)
        assert second != first, f"another content has the version {first!r} again"
        with _refused("CONFLICT", "replace of an old version"):
            store.replace(key, b"3", first)
        found = store.read_version(key)
        assert (found.data, found.version) == (b"2", second), f"replace told version {second!r}, {found} is read"


def one_of_many_writers_wins(place: Place) -> None:
    """Of eight that create an object, or replace one version of it, at once, one succeeds and the others conflict."""
    with _bench(place) as (store, folder):
        key = f"{folder}/lease"
        stores = [place.open() for _ in range(WRITERS)]
        for turn in range(5):
            _one_wins(stores, f"{key}-{turn}", None)
            _one_wins(stores, f"{key}-{turn}", store.read_version(f"{key}-{turn}").version)


def _one_wins(stores: Sequence[ObjectStore], key: str, version: str | None) -> None:
    what = "create" if version is None else "replace"

    def attempt(number: int) -> bool:
        try:
            data = uuid4().bytes  # a version may be a hash of the content
            stores[number].create(key, data) if version is None else stores[number].replace(key, data, version)
        except ObjectStoreError as error:
            if error.failure not in ("CONFLICT", "UNAVAILABLE"):
                raise
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        won = sum(pool.map(attempt, range(len(stores))))
    assert won == 1, f"{won} of {len(stores)} writers that {what} one version succeed, and one may"


def listings_are_of_a_folder(place: Place) -> None:
    """`list` gives full keys and sizes of the objects in a folder, and of its folders if asked for."""
    with _bench(place) as (store, folder):
        sizes = {f"{folder}/a/one": 3, f"{folder}/a/two": 0, f"{folder}/a/deep/three": 7, f"{folder}/ab/four": 1}
        for key, size in sizes.items():
            store.write(key, bytes(size))
        below = {each.key: each.size for each in store.list(f"{folder}/a")}
        wanted = {key: size for key, size in sizes.items() if key.startswith(f"{folder}/a/")}
        assert below == wanted, f"list of a folder gives {below}, not {wanted}"
        here = sorted(each.key for each in store.list(f"{folder}/a", below=False))
        assert here == [f"{folder}/a/one", f"{folder}/a/two"], f"list(below=False) gives {here}"
        nothing = list(store.list(f"{folder}/none"))
        assert not nothing, f"list of a folder that is not there gives {nothing}"
        before = {each.key: each.version for each in store.list(f"{folder}/a")}
        store.write(f"{folder}/a/one", b"other")
        after = {each.key: each.version for each in store.list(f"{folder}/a")}
        changed = {key for key in before if before[key] != after.get(key)}
        assert changed == {f"{folder}/a/one"}, (
            f"after one object was written again, {sorted(changed)} have new versions"
        )


def files_go_up_and_down(place: Place) -> None:
    """A file is uploaded, stays where it is, and comes down the same; an object of another size is NOT_FOUND."""
    with _bench(place) as (store, folder), TemporaryDirectory() as made:
        key, up, down = f"{folder}/file", Path(made, "up"), Path(made, "down")
        data = DATA * 700
        up.write_bytes(data)
        store.upload(key, up)
        assert up.is_file(), "upload takes the file away"
        told: list[int] = []
        store.download(key, down, len(data), told.append)
        assert down.read_bytes() == data, "a file comes down otherwise than it went up"
        assert sum(told) == len(data), f"progress was told {sum(told)} bytes of {len(data)}"
        with _refused("NOT_FOUND", "download of an object of another size"):
            store.download(key, Path(made, "other"), len(data) + 1, told.append)
        with _refused("NOT_FOUND", "download of a missing object"):
            store.download(f"{folder}/missing", Path(made, "missing"), 1, told.append)


def it_may_be_used_from_several_threads(place: Place) -> None:
    """Eight threads read and write other objects of one store, made on another thread, and get their own."""
    with _bench(place) as (store, folder):

        def own(number: int) -> str | None:
            data = b"%d" % number * 100
            try:
                for _ in range(4):
                    store.write(f"{folder}/{number}", data)
                    if store.read(f"{folder}/{number}") != data:
                        return "reads what another thread wrote"
            except Exception as error:
                return f"fails with {type(error).__name__}: {error}"
            return None

        with ThreadPoolExecutor(WRITERS) as pool:
            wrong = [told for told in pool.map(own, range(4 * WRITERS)) if told]
        assert not wrong, f"a thread among eight {wrong[0]}"


STORE_CHECKS: Sequence[Callable[[Place], None]] = tuple(
    map(
        bounded,
        (
            it_is_made_without_asking_and_without_secrets,
            what_is_written_is_read,
            what_is_missing_is_said_by_type,
            a_condition_holds,
            one_of_many_writers_wins,
            listings_are_of_a_folder,
            files_go_up_and_down,
            it_may_be_used_from_several_threads,
        ),
    )
)
