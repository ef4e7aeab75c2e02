"""The tier `cluster`: a store of objects that the machines of a cluster share, between the local disk and the Hub.

Anybody with write access may have written its contents, so sizes and hashes are checked before a file becomes visible,
and pickles are refused.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.cache import DiskCache, disk_cache, storage_error
from sie_core.cache.disk.proofs import Expected, Record, digest, flush, state_of, write_record
from sie_core.cache.disk.tier import LocalTier
from sie_core.cache.disk.writing import beside, link_whole
from sie_core.cache.formats import no_weights
from sie_core.cache.store import layout
from sie_core.cache.store.layout import Manifest, StoredFile
from sie_core.contracts import (
    LoadFailure,
    ModelLoadError,
    ObjectStore,
    ObjectStoreError,
    TierContext,
    WeightRequest,
    WeightTierFactory,
    is_pickled,
)
from sie_core.contracts.model.object_stores import StoreFailure
from sie_core.contracts.model.weights import PicklesMissing, Progress, holds_weights
from sie_core.plugins.object_stores import open_store

FAILURES: dict[StoreFailure, LoadFailure] = {
    "NOT_FOUND": "CORRUPT",
    "DENIED": "CONFIG",
    "UNAVAILABLE": "NETWORK",
    "CONFLICT": "NETWORK",
}
"""The class of a failed load, by the store's failure. A missing file that the manifest names means a corrupt copy."""


class ClusterTier:
    """Downloads from a store into the local cache, and stores weights of the Hub if allowed.

    Args:
        store: The store of the weights; see `layout`.
        cache: The local cache.
        fills: Whether weights may be stored.
    """

    name = "cluster"

    def __init__(self, store: ObjectStore, cache: DiskCache, *, fills: bool = False) -> None:
        self.store = store
        self.cache = cache
        self.fills = fills
        self._local = LocalTier(cache)

    def fetch(self, request: WeightRequest) -> Path | None:
        """Download the requested revision and return its folder; None if the store lacks it, or for a `peek`.

        Raises:
            ModelLoadError: `NETWORK`, `CONFIG` if the store refuses the credentials, `STORAGE`, `TIMEOUT`, or `CORRUPT`
                if its copy does not match its manifest.
        """
        if request.peek or not layout.is_repository(request.repo_id):
            return None
        with self._typed():
            commit = self._commit(request)
            manifest = None if commit is None else self._manifest(request.repo_id, commit)
        if manifest is None:
            return None
        if not any(holds_weights(name, request.weights) for name in manifest.files):
            raise ModelLoadError("NOT_FOUND", no_weights("its copy", pickled=False, weights=request.weights))
        if pickles := [name for name in request.pickles if not is_pickled(name)]:
            raise PicklesMissing(f"nothing pickled is stored, such as {' and '.join(pickles)}")
        with self.cache.pulling(request.repo_id):
            folder = self._there(manifest, request)
            if folder is None:
                with self._typed():
                    folder = self._pull(manifest, request.progress)
        hub_layout.write_ref(self.cache.folder, request.repo_id, request.revision, manifest.commit)
        return folder

    def fill(self, request: WeightRequest, folder: Path) -> bool:
        """Store a snapshot. The manifest is written last, so that readers never find a part.

        Raises:
            ModelLoadError: As `fetch`.
        """
        commit = folder.name
        if not (self.fills and layout.is_commit(commit) and layout.is_repository(request.repo_id)):
            return False
        names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
        if not any(holds_weights(name, request.weights) for name in names):
            return False  # pickles alone, which no store holds
        with self._typed():
            before = self._manifest(request.repo_id, commit)
            known = {} if before is None else before.files
            lacking = [name for name in names if hub_layout.wanted(name, request.weights) and name not in known]
            if lacking:
                self._store(Manifest(request.repo_id, commit, known), folder, lacking)
            revision = request.revision or "main"
            if revision != commit and hub_layout.is_relative_name(revision):
                self.store.write(layout.ref_key(request.repo_id, revision), commit.encode())
        return bool(lacking)

    def _commit(self, request: WeightRequest) -> str | None:
        """Read which commit a branch or tag names."""
        revision = request.revision or "main"
        if layout.is_commit(revision):
            return revision
        if not hub_layout.is_relative_name(revision):
            return None
        named = _found(lambda: self.store.read(layout.ref_key(request.repo_id, revision)))
        commit = None if named is None else named.decode(errors="replace").strip()
        return commit if commit is not None and layout.is_commit(commit) else None

    def _manifest(self, repo_id: str, commit: str) -> Manifest | None:
        content = _found(lambda: self.store.read(layout.manifest_key(repo_id, commit)))
        if content is None:
            return None
        try:
            return layout.read_manifest(content, repo_id, commit)
        except ValueError as error:
            raise self._corrupt(repo_id, commit, f"its manifest {error}") from error

    def _there(self, manifest: Manifest, request: WeightRequest) -> Path | None:
        """Return the snapshot if another process has just pulled it."""
        with contextlib.suppress(ModelLoadError):
            return self._local.fetch(replace(request, revision=manifest.commit))
        return None

    def _pull(self, manifest: Manifest, progress: Progress | None) -> Path:
        repo = hub_layout.repo_folder(self.cache.folder, manifest.repo_id)
        lacking = [
            each.size for each in manifest.files.values() if not _has_size(repo / "blobs" / each.sha256, each.size)
        ]
        self.cache.make_room(manifest.repo_id, sum(lacking))
        count = _Count(manifest.size, progress)
        try:
            (repo / "blobs").mkdir(parents=True, exist_ok=True)
            for name, file in manifest.files.items():
                self._blob(manifest, name, file, repo / "blobs" / file.sha256, count.more)
            return _snapshot(repo, manifest)
        except OSError as error:
            raise storage_error(manifest.repo_id, error) from error

    def _blob(
        self, manifest: Manifest, name: str, file: StoredFile, blob: Path, progress: Callable[[int], None]
    ) -> None:
        """Download one file into the cache and check its hash."""
        if _has_size(blob, file.size) and digest(blob) == file.sha256:
            progress(file.size)
            return
        new = beside(blob)
        try:
            key = layout.file_key(manifest.repo_id, manifest.commit, name)
            self.store.download(key, new, file.size, progress)
            found = digest(new)
            if found != file.sha256:
                raise self._corrupt(
                    manifest.repo_id,
                    manifest.commit,
                    f"{name} has the SHA-256 {found}, its manifest says {file.sha256}",
                )
            flush(new)
            new.replace(blob)
        finally:
            new.unlink(missing_ok=True)

    def _store(self, before: Manifest, folder: Path, names: Iterable[str]) -> None:
        files = dict(before.files)
        for name in names:
            file = folder / name
            files[name] = StoredFile(file.stat().st_size, digest(file))
            self.store.upload(layout.file_key(before.repo_id, before.commit, name), file)
        manifest = layout.write_manifest(replace(before, files=files))
        self.store.write(layout.manifest_key(before.repo_id, before.commit), manifest)

    def _corrupt(self, repo_id: str, commit: str, what: str) -> ModelLoadError:
        return ModelLoadError(
            "CORRUPT",
            f"the copy of {repo_id} in {self.store.url} is damaged: {what}. Remove models/{repo_id}/{commit} there and "
            "fill it again (SIE_CLUSTER_CACHE_FILL=true)",
        )

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except ObjectStoreError as error:
            raise ModelLoadError(FAILURES[error.failure], str(error)) from error


class _Count:
    """Adds up the bytes read by several readers."""

    def __init__(self, size: int, progress: Progress | None) -> None:
        self._size = size
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def more(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(self._done, self._size)


def _snapshot(repo: Path, manifest: Manifest) -> Path:
    """Make a snapshot of complete blobs: at once if there is none, file by file if some files are wrong."""
    folder = repo / "snapshots" / manifest.commit
    expected = {name: Expected(file.size, file.sha256) for name, file in manifest.files.items()}
    proved = {name: state_of(repo / "blobs" / file.sha256) for name, file in manifest.files.items()}
    write_record(folder, Record(expected, proved))
    new = folder if folder.exists() else repo / "snapshots" / f".{manifest.commit}.{uuid.uuid4().hex[:8]}"
    for name, file in manifest.files.items():
        link_whole(new / name, repo / "blobs" / file.sha256)
    if new != folder:
        new.replace(folder)
    return folder


def _has_size(file: Path, size: int) -> bool:
    return file.is_file() and file.stat().st_size == size


def _found(ask: Callable[[], bytes]) -> bytes | None:
    try:
        return ask()
    except ObjectStoreError as error:
        if error.failure == "NOT_FOUND":
            return None
        raise


def _create(context: TierContext) -> ClusterTier | None:
    url = context.settings.cluster_cache
    if url is None:
        return None
    store = open_store("SIE_CLUSTER_CACHE", url, context.object_stores)
    return ClusterTier(store, disk_cache(context.settings), fills=context.settings.cluster_cache_fill)


CLUSTER_TIER = WeightTierFactory(name="cluster", order=300, create=_create)
