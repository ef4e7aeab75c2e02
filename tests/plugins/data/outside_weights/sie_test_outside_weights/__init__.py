"""A store of objects in a folder, as `folder://`, and a tier that takes the place of the core's Hub."""

import shutil
from pathlib import Path

from sie_core.contracts import (
    ModelLoadError,
    ObjectStoreError,
    ObjectStoreFactory,
    StoredObject,
    WeightTierFactory,
)
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.tier/1", "sie.store/1")


class FolderStore:
    def __init__(self, url):
        self.url = url
        self._root = Path(url.removeprefix("folder://"))

    def read(self, key):
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            raise ObjectStoreError("NOT_FOUND", f"{self.url} has no {key}") from None

    def write(self, key, data):
        (self._root / key).parent.mkdir(parents=True, exist_ok=True)
        (self._root / key).write_bytes(data)

    def download(self, key, file, size, progress):
        file.write_bytes(self.read(key))
        progress(size)

    def upload(self, key, file):
        self.write(key, file.read_bytes())

    def size(self, key):
        return len(self.read(key)) if (self._root / key).is_file() else None

    def list(self, prefix, *, below=True):
        for file in (self._root / prefix).glob("**/*" if below else "*"):
            if file.is_file():
                yield StoredObject(str(file.relative_to(self._root)), file.stat().st_size, str(file.stat().st_mtime_ns))

    def delete(self, key):
        (self._root / key).unlink(missing_ok=True)


class Shelf:
    """Copies a repository from a folder beside the server into the local cache, as a Hub of its own."""

    name = "hub"
    commit = "5" * 40

    def __init__(self, cache):
        self._cache = cache

    def fetch(self, request):
        shelf = Path("shelf", request.repo_id)
        if request.peek:
            return None
        if not shelf.is_dir():
            raise ModelLoadError("NOT_FOUND", f"the shelf has no {request.repo_id}")
        repo = self._cache / f"models--{request.repo_id.replace('/', '--')}"
        return Path(shutil.copytree(shelf, repo / "snapshots" / self.commit, dirs_exist_ok=True))


@hookimpl
def sie_object_stores():
    return [ObjectStoreFactory("folder", FolderStore)]


@hookimpl
def sie_weight_tiers():
    return [WeightTierFactory("hub", 400, lambda context: Shelf(context.settings.local_cache))]
