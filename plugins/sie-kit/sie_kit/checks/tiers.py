"""The checks of weight tiers.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from sie_core.contracts import ModelLoadError, TierContext, WeightRequest, WeightTier, WeightTierFactory
from sie_core.contracts.model.weights import FillableTier
from sie_kit.outcomes import Skipped, bounded

ODD = ("sie-kit/../../etc", "../sie-kit", "..", ".", "../..", "sie-kit", "sie-kit/" + "n" * 300, "sie-kit/ü ñ")
"""Repositories by names that a client may send."""
FILES = {
    "config.json": json.dumps({"model_type": "sie-kit"}).encode(),
    "model.safetensors": bytes(8) + b"{}",
    "1_Pooling/config.json": b"{}",
}


@dataclass(frozen=True, slots=True)
class Tier:
    """A registered tier and what it is made of."""

    factory: WeightTierFactory
    context: TierContext
    repository: str | None = None
    """A repository whose weights it has; None if none is known."""

    def made(self) -> WeightTier:
        """Make it.

        Raises:
            Skipped: It is left out under these settings.
        """
        try:
            tier = self.factory.create(self.context)
        except Exception as error:
            raise AssertionError(
                f"create fails with {type(error).__name__}: {error}; return None without a setting"
            ) from (error)
        if tier is None:
            raise Skipped("its settings are not set, so it is left out; set them for this check")
        return tier


def it_is_made_as_it_is_registered(tier: Tier) -> None:
    """`create` gives a tier of the registered name with `fetch`, or None if its settings are not set."""
    made = tier.made()
    assert made.name == tier.factory.name, f"the tier is named {made.name!r}, its factory {tier.factory.name!r}"
    assert callable(getattr(made, "fetch", None)), f"{made!r} has no fetch"


def weights_it_has_not_are_passed(tier: Tier) -> None:
    """`fetch` of an unknown repository gives None, or raises ModelLoadError: the next tier is asked.

    A folder that is not there, or of another model, would end the search.
    """
    made = tier.made()
    for peek in (True, False):
        _passed(made, WeightRequest(f"sie-kit/unknown-{uuid4().hex}", peek=peek))


def odd_names_are_passed(tier: Tier) -> None:
    """Names with `..`, without an owner, very long or not ASCII, and unknown revisions are passed like any other."""
    made = tier.made()
    for name in ODD:
        _passed(made, WeightRequest(name, peek=True))
    for revision in ("main", "0" * 40, "refs/pr/1", "../.."):
        _passed(made, WeightRequest(f"sie-kit/unknown-{uuid4().hex}", revision, peek=True))


def _passed(tier: WeightTier, request: WeightRequest) -> None:
    asked = f"fetch of the unknown repository {request.repo_id!r:.60}, revision {request.revision!r},"
    try:
        folder = tier.fetch(request)
    except ModelLoadError:
        return
    except BaseException as error:
        raise AssertionError(f"{asked} raises {type(error).__name__}: {error}; return None to pass") from error
    assert folder is None, f"{asked} gives {folder!r}; return None to pass"


def what_it_has_is_a_folder_of_weights(tier: Tier) -> None:
    """`fetch` of the named repository gives an existing folder with a config and weights, twice the same."""
    if tier.repository is None:
        raise Skipped('no repository is named that it has: conformance(…, repository="org/name")')
    made = tier.made()
    first, again = (made.fetch(WeightRequest(tier.repository)) for _ in "12")
    assert isinstance(first, Path), f"fetch of {tier.repository} gives {first!r}, no Path"
    assert first.is_dir(), f"fetch of {tier.repository} gives {first}, which is no folder"
    names = {file.relative_to(first).as_posix() for file in first.rglob("*") if file.is_file()}
    assert any(name.endswith(".safetensors") for name in names), f"{first} holds no weights, but {sorted(names)}"
    assert again == first, f"fetch of {tier.repository} gives {first}, then {again}"


def what_it_stores_comes_back(tier: Tier) -> None:
    """A tier with `fill` gives back the same files, leaves the given folder, and stores a revision once."""
    made = tier.made()
    if not isinstance(made, FillableTier):
        raise Skipped("it has no fill, so it stores nothing")
    with _snapshot() as folder:
        request = WeightRequest(f"sie-kit/stored-{uuid4().hex}", "a" * 40)
        with ThreadPoolExecutor(1) as pool:
            filling = pool.submit(made.fill, request, folder)
            while not filling.done():
                found = _fetched(made, request)
                assert found in (None, FILES), f"while it stores, fetch gives a part: {sorted(found or ())}"
            stored = filling.result()
        assert isinstance(stored, bool), f"fill gives {stored!r}, not whether it has stored"
        assert _files(folder) == FILES, "fill changes the folder that it is given"
        if not stored:
            raise Skipped("it stores nothing under these settings")
        found = _fetched(made, request)
        assert found == FILES, f"of the stored files {sorted(FILES)} it gives {found and sorted(found)}"
        try:
            again = made.fill(request, folder)
        except Exception as error:
            raise AssertionError(f"a second fill fails with {type(error).__name__}: {error}") from error
        assert again is False, "a second fill of one revision says that it has stored"
        _passed(made, WeightRequest(request.repo_id, "b" * 40))


@contextmanager
def _snapshot() -> Iterator[Path]:
    with TemporaryDirectory() as made:
        folder = Path(made) / "snapshot"
        for name, data in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _fetched(tier: WeightTier, request: WeightRequest) -> dict[str, bytes] | None:
    try:
        folder = tier.fetch(request)
    except ModelLoadError:
        return None
    return None if folder is None else _files(folder)


def _files(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


TIER_CHECKS: Sequence[Callable[[Tier], None]] = tuple(
    map(
        bounded,
        (
            it_is_made_as_it_is_registered,
            weights_it_has_not_are_passed,
            odd_names_are_passed,
            what_it_has_is_a_folder_of_weights,
            what_it_stores_comes_back,
        ),
    )
)
