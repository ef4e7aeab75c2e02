"""The layout of weights in an object store, and the manifest; docs/operate/weights.md shows both.

models/<organisation>/<name>/refs/<branch or tag>          the commit it names, as text
models/<organisation>/<name>/<commit>/manifest.json        the files with sizes and SHA-256; written last
models/<organisation>/<name>/<commit>/files/<file>         the files themselves
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sie_core.cache.disk import hub_layout
from sie_core.contracts.model.weights import may_run_code

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[\w.\-]+(?:/[\w.\-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Size and hash of a file, from the manifest."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one commit in a store."""

    repo_id: str
    commit: str
    files: Mapping[str, StoredFile]
    """Keyed by their names, from the root of the repository."""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(each.size for each in self.files.values())


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit hash."""
    return _COMMIT.fullmatch(revision) is not None


def is_repository(repo_id: str) -> bool:
    """Whether a repository's id can be part of a key."""
    return _REPOSITORY.fullmatch(repo_id) is not None and hub_layout.is_relative_name(repo_id)


def ref_key(repo_id: str, revision: str | None) -> str:
    """Return the key of the object that names the commit of a branch or tag (None means `main`)."""
    return f"models/{repo_id}/refs/{revision or 'main'}"


def manifest_key(repo_id: str, commit: str) -> str:
    """Return the key of a commit's manifest."""
    return f"models/{repo_id}/{commit}/manifest.json"


def file_key(repo_id: str, commit: str, name: str) -> str:
    """Return the key of a commit's file."""
    return f"models/{repo_id}/{commit}/files/{name}"


def write_manifest(manifest: Manifest) -> bytes:
    """Write a manifest as JSON."""
    files = {name: {"size": each.size, "sha256": each.sha256} for name, each in sorted(manifest.files.items())}
    held = {"format": 1, "repo_id": manifest.repo_id, "revision": manifest.commit, "files": files}
    return json.dumps(held, indent=1).encode()


def read_manifest(content: bytes, repo_id: str, commit: str) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: It is not a manifest, or of another repository or commit; the message says which.
    """
    try:
        held = json.loads(content)
        files = {str(name): StoredFile(each["size"], each["sha256"]) for name, each in held["files"].items()}
        about = held["format"], held["repo_id"], held["revision"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("is no manifest") from error
    if about != (1, repo_id, commit):
        raise ValueError(f"is of format {about[0]!r} for {about[1]!r} at {about[2]!r}")
    for name, each in files.items():
        if not hub_layout.is_relative_name(name) or may_run_code(name):
            raise ValueError(f"names the file {name!r}, which is not one that is taken")
        if not (_is_size(each.size) and isinstance(each.sha256, str) and _SHA256.fullmatch(each.sha256)):
            raise ValueError(f"says no size and SHA-256 of {name!r}")
    return Manifest(repo_id, commit, files)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
