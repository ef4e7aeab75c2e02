"""The tier `hub`: downloads from the Hugging Face Hub, or a mirror of it, into the local cache.

It takes safetensors, configs and tokenizers, and of pickles only those that the model's config pins. Only this module
uses the Hub's client, and it imports the client at the first download.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.cache import DiskCache, disk_cache, storage_error
from sie_core.cache.disk.proofs import Expected, Record, known_digest, read_record, write_record
from sie_core.cache.disk.tier import check
from sie_core.cache.formats import describes, no_weights
from sie_core.cache.hub.environment import check_variables
from sie_core.cache.hub.files import fetch_files, kept_bytes, resumable
from sie_core.cache.hub.retries import PATIENT, HubRetries, TooLongAPause, asked_pause_s, bound_pauses, status_of
from sie_core.contracts import (
    ModelLoadError,
    PinnedFile,
    TierContext,
    WeightRequest,
    WeightTierFactory,
    is_pickled,
)
from sie_core.contracts.model.weights import Progress, holds_weights, read_pickles

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

    from sie_core.settings import Settings

log = logging.getLogger(__name__)

_METADATA_TIMEOUT_S = 10.0
"""Seconds that the Hub may take to describe a repository."""
LARGEST_DESCRIPTION = 2**25
"""Bound on the bytes of a file that is fetched to describe a model before its weights."""


class HubTier:
    """Downloads one snapshot at a time into `cache`.

    Args:
        cache: The local cache; other processes may use it at the same time.
        endpoint: The Hub or a mirror; None takes the client's own setting (`HF_ENDPOINT`).
        retries: How long transient failures are tried again.
    """

    name = "hub"

    def __init__(self, cache: DiskCache | Path, endpoint: str | None = None, retries: HubRetries = PATIENT) -> None:
        self.cache = cache if isinstance(cache, DiskCache) else DiskCache(cache)
        self.endpoint = endpoint
        self.retries = retries

    def fetch(self, request: WeightRequest) -> Path | None:
        """Download the requested revision and return its folder; None for a `peek`.

        The commit is resolved first, and every file is of that commit.

        Raises:
            ModelLoadError: `GATED`, `NOT_FOUND`, `NETWORK`, `STORAGE`, `CORRUPT` if a file differs from the Hub's list,
                or `CONFIG` if the repository has pickled weights only.
        """
        if request.peek:
            return None
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            raise ModelLoadError("NOT_FOUND", "not asked: HF_HUB_OFFLINE is set")
        bound_pauses()
        send_no_telemetry()
        try:
            info = self.retries.call(lambda: self._look(request))
            with self.cache.pulling(request.repo_id):
                return self._pull(request, info)
        except ModelLoadError:
            raise
        except Exception as error:
            raise _typed(error, request) from error

    def describe(self, request: WeightRequest, into: Path) -> None:
        """Fetch the files that describe a model into a folder, and put an empty file there for each other one.

        Raises:
            ModelLoadError: As `fetch`.
        """
        from huggingface_hub import hf_hub_download

        bound_pauses()
        send_no_telemetry()
        try:
            info = self._look(request)
            for file in info.siblings or ():
                name = file.rfilename
                if not hub_layout.wanted(name, request.weights) or ".." in Path(name).parts or name.startswith("/"):
                    continue
                if describes(Path(name).name) and (file.size or 0) <= LARGEST_DESCRIPTION:
                    hf_hub_download(request.repo_id, name, revision=info.sha, local_dir=into, endpoint=self.endpoint)
                else:
                    (into / name).parent.mkdir(parents=True, exist_ok=True)
                    (into / name).touch()
        except ModelLoadError:
            raise
        except Exception as error:
            raise _typed(error, request) from error

    def _look(self, request: WeightRequest) -> ModelInfo:
        """Ask for the commit and its files; refuse pickled weights before anything is downloaded."""
        from huggingface_hub import HfApi

        info = HfApi(endpoint=self.endpoint).model_info(
            request.repo_id, revision=request.revision, files_metadata=True, timeout=_METADATA_TIMEOUT_S
        )
        names = [file.rfilename for file in info.siblings or ()]
        pinned = any(is_pickled(name) for name in read_pickles(request.pickles, names, request.weights))
        if not pinned and not any(holds_weights(name, request.weights) for name in names):
            pickled = any(map(is_pickled, names))
            raise ModelLoadError("CONFIG", no_weights(request.repo_id, pickled, request.weights))
        if info.sha is None:
            raise ModelLoadError("NETWORK", f"the Hub named no commit of {request.repo_id}")
        return info

    def _pull(self, request: WeightRequest, info: ModelInfo) -> Path:
        commit = str(info.sha)
        listed_names = {file.rfilename for file in info.siblings or ()}
        names = {name for name in listed_names if hub_layout.wanted(name, request.weights)}
        pickles = read_pickles(request.pickles, listed_names, request.weights)
        files = [file for file in info.siblings or () if file.rfilename in names.union(pickles)]
        there = hub_layout.repo_folder(self.cache.folder, request.repo_id) / "snapshots" / commit
        # Written before any file: without the list a partial snapshot cannot be told from a whole one.
        before = read_record(there)
        listed = {**(before.files or {}), **{file.rfilename: _expected(file) for file in files}}
        write_record(there, Record(listed, before.proved))
        whole = there.is_dir() and not self._clear_faults(there)
        if whole and hub_layout.missing(there, request.weights, pickles) is None:
            return self._named(request, there)
        lacking_files = [file for file in files if not (there / file.rfilename).exists()]
        expected = {file.rfilename: _expected(file) for file in lacking_files}
        large = resumable(expected)
        size = sum(each.size or 0 for each in expected.values())
        fetched = size - kept_bytes(there.parent.parent, large)
        # Pickled weights are converted once, into a file of the same size.
        converted = sum(each.size or 0 for name, each in expected.items() if is_pickled(name))
        log.info("%s: %d files, %.1f MB, are fetched from the Hub", request.repo_id, len(expected), fetched / 1e6)
        self.cache.make_room(request.repo_id, fetched + converted)
        folder = self.retries.call(lambda: self._download(request, there, list(expected), large, size))
        lacking = hub_layout.missing(folder, request.weights, pickles)
        if lacking is not None:
            raise ModelLoadError("NETWORK", f"the download of {request.repo_id} is not whole: {lacking} is missing")
        check(self.cache, request, folder)
        return self._named(request, folder)

    def _clear_faults(self, folder: Path) -> bool:
        """Unlink wrong files of a snapshot, which the Hub's client would keep. Processes can go on reading open ones.

        Returns:
            Whether a file was wrong or missing.
        """
        faults = self.cache.proofs.faults(folder)
        for name in faults:
            file = folder / name
            if file.is_symlink():
                (file.parent / file.readlink()).unlink(missing_ok=True)
            file.unlink(missing_ok=True)
        return bool(faults)

    def _named(self, request: WeightRequest, folder: Path) -> Path:
        """Record in the local cache which commit the requested branch or tag names."""
        hub_layout.write_ref(self.cache.folder, request.repo_id, request.revision, folder.name)
        return folder

    def _download(
        self, request: WeightRequest, there: Path, names: Sequence[str], large: Mapping[str, Expected], size: int
    ) -> Path:
        """Fetch the large files resumably, then have the Hub's client fetch the rest."""
        from huggingface_hub import hf_hub_url, snapshot_download

        count = _Count(size, request.progress)
        fetch_files(
            there.parent.parent,
            there,
            large,
            lambda name: hf_hub_url(request.repo_id, name, revision=there.name, endpoint=self.endpoint),
            count.more,
        )
        folder = snapshot_download(
            request.repo_id,
            revision=there.name,
            cache_dir=self.cache.folder,
            endpoint=self.endpoint,
            allow_patterns=[escape(name) for name in names],
            tqdm_class=None if request.progress is None else _progress_bar(count.beside),
        )
        return Path(folder)


class _Count:
    """Adds up the bytes that were fetched, first here and then by the Hub's client."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def more(self, size: int) -> None:
        """Count bytes that were fetched here."""
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)

    def beside(self, done: int, total: int) -> None:
        """Set the bytes that the Hub's client has fetched so far."""
        if self._progress is not None:
            self._progress(self._done + done, max(self._total, self._done + total))


def is_offline(settings: Settings) -> bool:
    """Whether the Hub may not be asked: by `SIE_HF_FALLBACK`, or by the switch of the Hub's client."""
    if not settings.hf_fallback:
        return True
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def send_no_telemetry() -> None:
    """Turn off telemetry and update checks of the Hub's client."""
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True


def _expected(file: RepoSibling) -> Expected:
    """Read size and hash from the Hub's list. The blob id of a large file is that of its pointer, so it is ignored."""
    large = file.lfs is not None or file.rfilename.endswith(".safetensors")
    digest = (file.lfs.sha256 if file.lfs else None) if large else file.blob_id
    return Expected(file.size, known_digest(digest))


def _progress_bar(progress: Progress) -> type[Any]:
    """Make a class of progress bar for the Hub's client that draws nothing and calls `progress`."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.counts = options.get("unit") == "B" and "transfer" not in str(options.get("name"))
            self.done = 0
            super().__init__(*arguments, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            if self.counts:
                progress(self.done, int(self.total or 0))

    return Bar


def ask_commit(request: WeightRequest, endpoint: str | None = None) -> str:
    """Ask the Hub for the commit a revision names now; downloads nothing.

    Raises:
        ModelLoadError: `GATED`, `NOT_FOUND` or `NETWORK`.
    """
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise ModelLoadError("NOT_FOUND", f"the Hub is not asked for {request.repo_id}: HF_HUB_OFFLINE is set")
    send_no_telemetry()
    try:
        info = HfApi(endpoint=endpoint).model_info(
            request.repo_id, revision=request.revision, timeout=_METADATA_TIMEOUT_S
        )
    except Exception as error:
        raise _typed(error, request) from error
    if info.sha is None:
        raise ModelLoadError("NETWORK", f"the Hub named no commit of {request.repo_id}")
    return info.sha


def ask_pickles(request: WeightRequest, commit: str, endpoint: str | None = None) -> dict[str, PinnedFile]:
    """Ask the Hub for the pickled weights of a commit, with their sizes and hashes; downloads nothing.

    Raises:
        ModelLoadError: As `ask_commit`.
    """
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise ModelLoadError("NOT_FOUND", f"the Hub is not asked for {request.repo_id}: HF_HUB_OFFLINE is set")
    send_no_telemetry()
    try:
        info = HfApi(endpoint=endpoint).model_info(
            request.repo_id, revision=commit, files_metadata=True, timeout=_METADATA_TIMEOUT_S
        )
    except Exception as error:
        raise _typed(error, request) from error
    return {
        file.rfilename: PinnedFile(file.size, file.lfs.sha256)
        for file in info.siblings or ()
        if is_pickled(file.rfilename) and "/" not in file.rfilename and file.lfs is not None
    }


def _typed(error: Exception, request: WeightRequest) -> ModelLoadError:
    """Classify a failure of the Hub's client. The message leaves its text out, which holds URLs and paths."""
    from huggingface_hub import errors

    where = f"{request.repo_id} at revision {request.revision}" if request.revision else request.repo_id
    if isinstance(error, errors.GatedRepoError):
        return ModelLoadError(
            "GATED", f"access to {where} is gated: accept its terms on the Hub and set HF_TOKEN to a token of yours"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelLoadError("NOT_FOUND", f"{request.repo_id} has no revision {request.revision}")
    if isinstance(error, errors.RepositoryNotFoundError | errors.DisabledRepoError):
        return ModelLoadError("NOT_FOUND", f"there is no repository {where}, or it is private and needs HF_TOKEN")
    if isinstance(error, errors.HFValidationError):
        return ModelLoadError("NOT_FOUND", f"{request.repo_id} is no repository id: it reads `organisation/name`")
    if isinstance(error, UnicodeEncodeError):  # of the file that the Hub's client keeps a token in
        return ModelLoadError("GATED", f"the token for {where} is not ASCII: log in anew, or set HF_TOKEN to another")
    if isinstance(error, errors.HfHubHTTPError | TooLongAPause):
        status, pause = status_of(error), asked_pause_s(error)
        if status == 429:
            after = "" if pause is None else f", and asks to be left alone for {pause:.0f} s"
            return ModelLoadError(
                "NETWORK",
                f"the Hub answered 429 for {where}: too many requests{after}. A token in HF_TOKEN raises its limit",
            )
        return ModelLoadError("NETWORK", f"the Hub answered {status} for {where}")
    if isinstance(error, OSError) and _is_storage(error):
        return storage_error(where, error)
    return ModelLoadError("NETWORK", f"the Hub could not be reached for {where} ({type(error).__name__})")


def _is_storage(error: Exception) -> bool:
    """Whether an error is the disk's: it has an errno and is neither a connection's nor the client's own."""
    foreign = (
        isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.partition(".")[0] != "builtins"
    )
    return isinstance(error, OSError) and error.errno is not None and not foreign


def _create(context: TierContext) -> HubTier | None:
    if not context.settings.hf_fallback:
        return None
    check_variables()
    return HubTier(disk_cache(context.settings))


HUB_TIER = WeightTierFactory(name="hub", order=400, create=_create)
