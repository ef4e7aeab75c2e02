"""The tier `hub`: downloads from the Hugging Face Hub, or a mirror of it, into the local cache.

It takes safetensors, configs and tokenizers, never pickled weights. Everything of the Hub's client stays behind this
module, which imports it at the first download.
"""

from __future__ import annotations

from pathlib import Path

from sie_core.cache import hub_layout
from sie_core.cache.formats import no_safetensors
from sie_core.cache.local import cache_folder
from sie_core.contracts import ModelLoadError, TierContext, WeightRequest, WeightTierFactory, is_pickled

_METADATA_TIMEOUT_S = 10.0


class HubTier:
    """Downloads one snapshot at a time into `cache`.

    Args:
        cache: A folder in the Hub's cache layout; other processes may use it at the same time.
        endpoint: The Hub or a mirror; None takes the client's own setting (`HF_ENDPOINT`).
    """

    name = "hub"

    def __init__(self, cache: Path, endpoint: str | None = None) -> None:
        self.cache = cache
        self.endpoint = endpoint

    def fetch(self, request: WeightRequest) -> Path | None:
        """Download the requested revision and return its folder; None for a mere look.

        Raises:
            ModelLoadError: `GATED`, `NOT_FOUND`, `NETWORK`, `STORAGE`, or `CONFIG` where the repository has pickled
                weights only.
        """
        if request.peek:
            return None
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            raise ModelLoadError("NOT_FOUND", "not asked: HF_HUB_OFFLINE is set")
        try:
            self._refuse_pickles(request)
            folder = self._download(request)
        except ModelLoadError:
            raise
        except Exception as error:
            raise _typed(error, request) from error
        lacking = hub_layout.missing(folder)
        if lacking is not None:
            raise ModelLoadError("NETWORK", f"the download of {request.repo_id} is not whole: {lacking} is missing")
        return folder

    def _refuse_pickles(self, request: WeightRequest) -> None:
        """Look at the list of files before any is downloaded."""
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.endpoint)
        info = api.model_info(request.repo_id, revision=request.revision, timeout=_METADATA_TIMEOUT_S)
        names = [file.rfilename for file in info.siblings or ()]
        if not any(name.endswith(".safetensors") for name in names):
            raise ModelLoadError("CONFIG", no_safetensors(request.repo_id, any(map(is_pickled, names))))

    def _download(self, request: WeightRequest) -> Path:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            request.repo_id,
            revision=request.revision,
            cache_dir=self.cache,
            endpoint=self.endpoint,
            allow_patterns=list(hub_layout.ALLOWED_FILES),
            ignore_patterns=list(hub_layout.IGNORED_FILES),
        )
        return Path(folder)


def ask_commit(request: WeightRequest, endpoint: str | None = None) -> str:
    """Ask the Hub for the commit a revision names now; downloads nothing.

    Raises:
        ModelLoadError: `GATED`, `NOT_FOUND` or `NETWORK`.
    """
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise ModelLoadError("NOT_FOUND", f"the Hub is not asked for {request.repo_id}: HF_HUB_OFFLINE is set")
    try:
        info = HfApi(endpoint=endpoint).model_info(
            request.repo_id, revision=request.revision, timeout=_METADATA_TIMEOUT_S
        )
    except Exception as error:
        raise _typed(error, request) from error
    if info.sha is None:
        raise ModelLoadError("NETWORK", f"the Hub named no commit of {request.repo_id}")
    return info.sha


def _typed(error: Exception, request: WeightRequest) -> ModelLoadError:
    """Class a failure of the Hub's client. Its own text stays out of the message: it holds URLs and paths."""
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
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(error.response, "status_code", None)
        return ModelLoadError("NETWORK", f"the Hub answered {status} for {where}")
    if _is_storage(error):
        return ModelLoadError("STORAGE", f"the local cache cannot take {where}: {_strerror(error)}")
    return ModelLoadError("NETWORK", f"the Hub could not be reached for {where} ({type(error).__name__})")


def _is_storage(error: Exception) -> bool:
    """Whether an error came from the disk: it has a number and is neither of a connection nor of the client's own."""
    foreign = (
        isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.partition(".")[0] != "builtins"
    )
    return isinstance(error, OSError) and error.errno is not None and not foreign


def _strerror(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or type(error).__name__)


def _create(context: TierContext) -> HubTier | None:
    return HubTier(cache_folder(context.settings)) if context.settings.hf_fallback else None


HUB_TIER = WeightTierFactory(name="hub", order=400, create=_create)
