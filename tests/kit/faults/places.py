"""Weight tiers and object stores, each broken in one way."""

from __future__ import annotations

import shutil
import tempfile
import threading
from itertools import count
from pathlib import Path

from sie_core.contracts import ModelLoadError, ObjectStoreError, StoredObject, VersionedObject
from sie_core.folder_store import FolderStore
from tests.kit.faults.seeding import fault


class Shelf:
    """A sound tier in few lines: it stores what it is offered, and gives it back; faults are made of it."""

    name = "shelf"

    def __init__(self, context):
        self.root = Path(tempfile.mkdtemp())

    def place(self, request):
        return self.root / request.repo_id.replace("/", "--") / (request.revision or "main")

    def fetch(self, request):
        folder = self.place(request)
        return folder if len(request.repo_id) < 100 and folder.is_dir() else None

    def fill(self, request, folder):
        if self.place(request).exists():
            return False
        shutil.copytree(folder, whole := Path(tempfile.mkdtemp(dir=self.root)) / "whole")
        self.place(request).parent.mkdir(parents=True, exist_ok=True)
        whole.rename(self.place(request))
        return True


UNKNOWN = "weights_it_has_not_are_passed"


@fault("weight tier", UNKNOWN)
class RaisesForTheUnknown(Shelf):
    def fetch(self, request):
        return {}[request.repo_id]


@fault("weight tier", UNKNOWN)
class NamesAFolderThatIsNotThere(Shelf):
    def fetch(self, request):
        return Path("/nowhere")


@fault("weight tier", UNKNOWN)
class GivesStrings(Shelf):
    def fetch(self, request):
        return str(self.root)


@fault("weight tier", UNKNOWN)
class GivesItsRoot(Shelf):
    def fetch(self, request):
        return self.root


@fault("weight tier", UNKNOWN)
class Leaves(Shelf):
    def fetch(self, request):
        raise SystemExit(1)


@fault("weight tier", UNKNOWN, hangs=True)
class HangsForTheUnknown(Shelf):
    def fetch(self, request):
        threading.Event().wait()


@fault("weight tier", "odd_names_are_passed")
class ReadsOutsideItsRoot(Shelf):
    def place(self, request):
        return self.root / request.repo_id


@fault("weight tier", "odd_names_are_passed")
class FailsOnRevisions(Shelf):
    def place(self, request):
        assert request.revision is None
        return super().place(request)


@fault("weight tier", "it_is_made_as_it_is_registered")
class HasAnotherName(Shelf):
    name = "cupboard"


@fault("weight tier", "it_is_made_as_it_is_registered")
class CannotBeMade(Shelf):
    def __init__(self, context):
        raise KeyError("SHELF")


@fault("weight tier", "it_is_made_as_it_is_registered")
class HasNoFetch:
    name = "shelf"

    def __init__(self, context):
        pass


STORES = "what_it_stores_comes_back"


@fault("weight tier", STORES)
class TakesTheFolderAway(Shelf):
    def fill(self, request, folder):
        self.place(request).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, self.place(request))
        return True


@fault("weight tier", STORES)
class StoresConfigsAlone(Shelf):
    def fill(self, request, folder):
        shutil.copytree(folder, self.place(request), ignore=shutil.ignore_patterns("*.safetensors"))
        return True


@fault("weight tier", STORES)
class StoresTopFilesAlone(Shelf):
    def fill(self, request, folder):
        self.place(request).mkdir(parents=True)
        for file in folder.iterdir():
            if file.is_file():
                shutil.copy(file, self.place(request))
        return True


@fault("weight tier", STORES)
class SaysNothing(Shelf):
    def fill(self, request, folder):
        super().fill(request, folder)


@fault("weight tier", STORES)
class StoresTwice(Shelf):
    def fill(self, request, folder):
        shutil.copytree(folder, self.place(request))
        return True


@fault("weight tier", STORES)
class IgnoresRevisions(Shelf):
    def place(self, request):
        return self.root / request.repo_id.replace("/", "--")


@fault("weight tier", STORES)
class GivesHalvesMeanwhile(Shelf):
    def fill(self, request, folder):
        self.place(request).mkdir(parents=True)
        threading.Event().wait(0.05)
        shutil.copytree(folder, self.place(request), dirs_exist_ok=True)
        return True


class Store(FolderStore):
    """A folder by its URL; a check of it makes several."""

    def __init__(self, url):
        super().__init__(Path(url.partition("://")[2]), durable=False)


ROUND = "what_is_written_is_read"


@fault("object store", ROUND)
class ReadsText(Store):
    def read(self, key):
        return super().read(key).decode(errors="replace")


@fault("object store", ROUND)
class WritesOnce(Store):
    def write(self, key, data):
        if self.size(key) is None:
            super().write(key, data)


@fault("object store", ROUND)
class ForgetsFolders(Store):
    def _file(self, key):
        return super()._file(key.rpartition("/")[2])


MISSING = "what_is_missing_is_said_by_type"


@fault("object store", MISSING)
class ReadsMissingAsEmpty(Store):
    def read(self, key):
        try:
            return super().read(key)
        except ObjectStoreError:
            return b""


@fault("object store", MISSING)
class RaisesItsOwn(Store):
    def read(self, key):
        try:
            return super().read(key)
        except ObjectStoreError as error:
            raise LookupError(key) from error


@fault("object store", MISSING)
class DeletesTheKnownAlone(Store):
    def delete(self, key):
        self.read(key)
        super().delete(key)


@fault("object store", MISSING)
class SizesMissingAsNone(Store):
    def size(self, key):
        return super().size(key) or 0


ONCE = "a_condition_holds"


@fault("object store", ONCE)
class CreatesOver(Store):
    def create(self, key, data):
        self.write(key, data)
        return self.read_version(key).version


@fault("object store", ONCE)
class ReplacesAnything(Store):
    def replace(self, key, data, version):
        self.write(key, data)
        return self.read_version(key).version


@fault("object store", ONCE)
class ReplacesTheMissing(Store):
    def replace(self, key, data, version):
        try:
            return super().replace(key, data, version)
        except ObjectStoreError:
            if self.size(key) is None:
                return self.create(key, data)
            raise


@fault("object store", "one_of_many_writers_wins")
class ChecksFirst(Store):
    def replace(self, key, data, version):
        if self.read_version(key).version != version:
            raise ObjectStoreError("CONFLICT", "replaced")
        threading.Event().wait(0.002)
        self.write(key, data)
        return self.read_version(key).version


@fault("object store", "one_of_many_writers_wins")
class CreatesByChecking(Store):
    def create(self, key, data):
        if self.size(key) is not None:
            raise ObjectStoreError("CONFLICT", "created")
        threading.Event().wait(0.002)
        self.write(key, data)
        return self.read_version(key).version


@fault("object store", ONCE)
class KeepsOneVersion(Store):
    numbers = count()

    def read_version(self, key):
        return VersionedObject(self.read(key), "1")

    def create(self, key, data):
        super().create(key, data)
        return "1"

    def replace(self, key, data, version):
        if version != "1":
            raise ObjectStoreError("CONFLICT", "replaced")
        self.write(key, data)
        return "1"


LISTS = "listings_are_of_a_folder"


@fault("object store", LISTS)
class ListsByPrefix(Store):
    def list(self, prefix, *, below=True):
        for each in super().list("", below=True):
            if each.key.startswith(prefix) and (below or "/" not in each.key[len(prefix) + 1 :]):
                yield each


@fault("object store", LISTS)
class ListsEverythingBelow(Store):
    def list(self, prefix, *, below=True):
        return super().list(prefix)


@fault("object store", LISTS)
class ListsBareNames(Store):
    def list(self, prefix, *, below=True):
        for each in super().list(prefix, below=below):
            yield StoredObject(each.key.removeprefix(f"{prefix}/"), each.size, each.version)


@fault("object store", LISTS)
class ListsNoSizes(Store):
    def list(self, prefix, *, below=True):
        for each in super().list(prefix, below=below):
            yield StoredObject(each.key, 0, each.version)


FILES = "files_go_up_and_down"


@fault("object store", FILES)
class DownloadsWhateverThereIs(Store):
    def download(self, key, file, size, progress):
        data = self.read(key)
        file.write_bytes(data)
        progress(len(data))


@fault("object store", FILES)
class TellsNoProgress(Store):
    def download(self, key, file, size, progress):
        super().download(key, file, size, lambda count: None)


@fault("object store", FILES)
class MovesUploads(Store):
    def upload(self, key, file):
        super().upload(key, file)
        file.unlink()


@fault("object store", "it_is_made_without_asking_and_without_secrets")
class TellsItsPassword(Store):
    def __init__(self, url):
        super().__init__(url)
        self.url = "t://user:password@bucket"


@fault("object store", "it_is_made_without_asking_and_without_secrets")
class RefusesByItsOwnType(Store):
    def __init__(self, url):
        if not url.partition("://")[2]:
            raise LookupError("no bucket")
        super().__init__(url)


@fault("object store", "it_may_be_used_from_several_threads")
class BelongsToOneThread(Store):
    def __init__(self, url):
        super().__init__(url)
        self.thread = threading.get_ident()

    def read(self, key):
        if threading.get_ident() != self.thread:
            raise ModelLoadError("UNKNOWN", "used from another thread")
        return super().read(key)


@fault("object store", "it_may_be_used_from_several_threads")
class ReadsInAField(Store):
    def read(self, key):
        self.key = key
        threading.Event().wait(0.0005)
        return super().read(self.key)


@fault("object store", None)
class RetriesNothing(Store):
    """Gives up at the first failure of a network that the kit cannot make fail."""
