"""Resolves the commit of a repository's weights: that of the local cache, else that of the Hub. Downloads nothing."""

from __future__ import annotations

import re
from typing import NamedTuple

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.cache import cache_folder
from sie_core.cache.hub.tier import ask_commit
from sie_core.contracts import ModelLoadError, WeightRequest
from sie_core.settings import Settings

_COMMIT = re.compile(r"[0-9a-f]{40}")


class ResolvedRevision(NamedTuple):
    """A commit, and the name of the tier that gave it: `local` or `hub`."""

    commit: str
    tier: str


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a whole commit hash, which never moves."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def resolve_revision(request: WeightRequest, settings: Settings) -> ResolvedRevision:
    """Return the commit that a load of `request` would get now: a complete snapshot of the local cache comes first.

    Raises:
        ModelLoadError: Neither has it; with the class of the Hub's failure, or `NOT_FOUND` if the Hub may not be asked.
    """
    folder = hub_layout.snapshot(cache_folder(settings), request.repo_id, request.revision)
    if folder is not None and hub_layout.missing(folder, pickles=request.pickles) is None and is_commit(folder.name):
        return ResolvedRevision(folder.name, "local")
    if not settings.hf_fallback:
        raise ModelLoadError(
            "NOT_FOUND",
            f"The local cache has no whole snapshot of {request.repo_id} at {request.revision or 'main'}, and the Hub "
            "may not be asked (SIE_HF_FALLBACK=false).",
        )
    return ResolvedRevision(ask_commit(request), "hub")
