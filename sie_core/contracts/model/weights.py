"""Weight tiers: asked in order until one has the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sie_core.contracts.errors import ModelLoadError
from sie_core.contracts.model.object_stores import ObjectStoreFactory

PICKLED_WEIGHTS = (
    "pytorch_model*.bin",
    "adapter_model*.bin",
    *(f"{name}*{ending}" for name in ("pytorch_model", "model") for ending in (".pt", ".pth", ".ckpt", ".pkl")),
)
"""Names of files with weights that reading may turn into running code.

Other files end alike and are no such weights: `.bin` files of OpenVINO and Core ML, and leftovers of training runs.
"""


PICKLE_ENDINGS = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Endings of files that are pickles, whatever is in them."""
SAFETENSORS = ("*.safetensors",)
"""Weight files of a family that declares no others."""
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "spm.model", "vocab.txt")
"""Files by which a repository has a tokenizer; its other small files are fetched with them, and no weights."""


def is_pickled(name: str) -> bool:
    """Whether the file `name`, whatever folder it is in, holds pickled weights."""
    return any(fnmatchcase(name.rpartition("/")[2], pattern) for pattern in PICKLED_WEIGHTS)


def may_run_code(name: str) -> bool:
    """Whether the file `name` is a pickle by its name, or a pattern that matches pickles."""
    return is_pickled(name) or name.lower().endswith(PICKLE_ENDINGS)


def holds_weights(name: str, weights: Iterable[str]) -> bool:
    """Whether a file's path in its repository matches one of the patterns in `weights`; `*` spans `/`."""
    return any(fnmatchcase(name, pattern) for pattern in weights) and not may_run_code(name)


def read_pickles(pickles: Iterable[str], names: Collection[str], weights: Iterable[str]) -> tuple[str, ...]:
    """List those of the pinned `pickles` that a load reads, given the files `names` of a repository.

    Pickled weights are read only where no file matches the patterns `weights`.
    """
    others = any(holds_weights(name, weights) for name in names)
    return tuple(name for name in pickles if name in names and not (others and is_pickled(name)))


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file as somebody checked it, pinned by its hash, and its size if known."""

    size: int | None
    """Bytes; None if the hash alone is known."""
    sha256: str


Progress = Callable[[int, int], None]
"""Called with the bytes of a download so far, and the total as far as known."""


@dataclass(frozen=True, slots=True)
class WeightRequest:
    """The weights of one model: a Hub repository at a revision."""

    repo_id: str
    revision: str | None = None
    peek: bool = False
    """Only check whether the weights are on this machine: no download, no hashing."""
    _: KW_ONLY
    pickles: tuple[str, ...] = ()
    """Pickled files that the model's config pins; a tier may return them unchanged.

    Those that hold the weights themselves are asked for only where there are no others (`read_pickles`).
    """
    weights: tuple[str, ...] = SAFETENSORS
    """Patterns of the requested weight files, in addition to configs and tokenizers; at least one must exist."""
    progress: Progress | None = field(default=None, compare=False)
    """Told of a download under way, from any thread."""


class PicklesMissing(ModelLoadError):
    """A tier has the weights, but not the requested pickled files. It is asked again if no tier has both."""

    def __init__(self, message: str) -> None:
        super().__init__("NOT_FOUND", message)


class WeightTier(Protocol):
    """One place weights may be."""

    name: str

    def fetch(self, request: WeightRequest) -> Path | None:
        """Return a local folder in the Hub's layout that holds the weights, complete and verified, or None to pass.

        Runs on a thread of its own and may take minutes; one that reports no `request.progress` for half a minute is
        passed over, and waited for only if no other tier has the weights.

        Raises:
            ModelLoadError: The tier is the right one and failed (gated, network, storage, corrupt), or gives a reason
                for passing (`NOT_FOUND`). The next tier is asked either way.
        """
        ...


@runtime_checkable
class PeekingTier(WeightTier, Protocol):
    """A tier that a running server asks now and again for every model, by requests that `peek`."""

    peeks: bool
    """True: such a request is answered at once, and never leaves the machine."""


@runtime_checkable
class FillableTier(WeightTier, Protocol):
    """A tier that takes weights which a farther one gave."""

    def fill(self, request: WeightRequest, folder: Path) -> bool:
        """Store the weights in `folder`, a snapshot in the Hub's layout; False if the tier does not store, or already
        has them.

        Runs on its own thread during the load; `folder` stays until it returns.

        Raises:
            ModelLoadError: It could not; the class says why. The load is not affected.
        """
        ...


@dataclass(frozen=True, slots=True)
class WeightPackage:
    """Weights of a Hub repository that an installed Python distribution carries."""

    repo_id: str
    distribution: str
    """The distribution on the package index; the package is skipped if it is not installed."""
    module: str
    """The import package whose folder holds the weights."""
    _: KW_ONLY
    folder: str = "."
    """The weights' folder inside it."""
    sha256: tuple[tuple[str, str], ...] = ()
    """Pairs of file and expected SHA-256, checked before first use."""
    revision: str | None = None
    """Revision of the files in the repository, if known: requests for another revision skip the package."""


@dataclass(frozen=True, slots=True)
class TierContext:
    """The inputs for creating a tier."""

    settings: Any
    """The `sie_core.settings.Settings` in force."""
    packages: tuple[WeightPackage, ...] = ()
    """Every registered weight package."""
    object_stores: Mapping[str, ObjectStoreFactory] = field(default_factory=dict)
    """Every registered kind of object store, by URL scheme."""


@dataclass(frozen=True, slots=True)
class WeightTierFactory:
    """A tier a plugin offers.

    `order` places it in the chain, nearest first: baked 50, local 100, packages 200, cluster 300, Hub 400.
    """

    name: str
    order: int
    create: Callable[[TierContext], WeightTier | None]
    """Called once at start; None leaves the tier out.

    A `PluginError` means that a setting which names the tier is unusable, and stops the start; any other exception is
    reported and leaves the tier out.
    """
