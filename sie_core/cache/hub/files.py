"""Fetches the large files of a snapshot from the Hub, and resumes earlier fetches.

The Hub's client starts every file at its first byte, under a new name, and leaves that file behind when its process is
killed. This module writes each blob under a name made of its hash. The caller checks the contents, and ensures that no
other process fetches at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sie_core.cache.disk.hub_layout import PARTIAL
from sie_core.cache.disk.proofs import Expected, digest
from sie_core.cache.disk.writing import link_whole
from sie_core.contracts import ModelLoadError

AT_ONCE = 4
"""Files of one snapshot fetched at once; more would only share the bandwidth."""
_READ_TIMEOUT_S = 30.0
"""Seconds that a download waits for the next bytes."""

Moved = Callable[[int], None]


def resumable(files: Mapping[str, Expected]) -> dict[str, Expected]:
    """Choose the files whose size and SHA-256 are known, as the Hub's are for all large files."""
    return {name: each for name, each in files.items() if each.size and each.digest and len(each.digest) == 64}


def kept_bytes(repo: Path, files: Mapping[str, Expected]) -> int:
    """Return the bytes of files that are here already, whole or in part."""
    return sum(min(each.size or 0, _size(_blob(repo, each)) or _size(_partial(repo, each))) for each in files.values())


def fetch_files(
    repo: Path, snapshot: Path, files: Mapping[str, Expected], url: Callable[[str], str], moved: Moved
) -> None:
    """Fetch the files chosen by `resumable` into a snapshot, a few at once.

    Args:
        repo: The repository's folder in the cache; no other process fetches into it at the same time.
        snapshot: The folder of the commit.
        files: By name.
        url: Makes the URL of a name.
        moved: Called with the number of bytes present, including those of an earlier fetch; negative if some were
        discarded.

    Raises:
        Exception: Any exception of the Hub's client for a connection or a response; partial files stay.
        OSError: The disk does not take them; the partial file is removed to free its room.
    """
    lock = threading.Lock()

    def count(size: int) -> None:
        with lock:
            moved(size)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        fetches = {
            name: threads.submit(_fetch, _blob(repo, each), _partial(repo, each), each, url(name), count)
            for name, each in files.items()
        }
    for name, fetched in fetches.items():
        fetched.result()
        link_whole(snapshot / name, _blob(repo, files[name]))


def _fetch(blob: Path, partial: Path, expected: Expected, url: str, moved: Moved) -> None:
    size = expected.size or 0
    if _size(blob) == size:
        return moved(size)
    blob.parent.mkdir(parents=True, exist_ok=True)
    resumed = _size(partial)
    if resumed > size:
        partial.unlink()
        resumed = 0
    moved(resumed)
    if resumed < size:
        _read(partial, resumed, url, moved)
    if _size(partial) < size:
        raise ModelLoadError("NETWORK", f"the Hub ended a file after {_size(partial)} of {size} bytes")
    if resumed and digest(partial) != expected.digest:
        # The partial file of an earlier fetch was damaged, perhaps by a power cut.
        partial.unlink()
        moved(-size)
        _read(partial, 0, url, moved)
    partial.replace(blob)
    return None


def _read(partial: Path, start: int, url: str, moved: Moved) -> None:
    """Append the rest of a file to its partial one; start over if the response is not a range."""
    from huggingface_hub import utils

    hub: Any = utils
    headers = hub.build_hf_headers() | {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with hub.get_session().stream("GET", url, headers=headers, timeout=_READ_TIMEOUT_S) as answer:
        if answer.status_code >= 400:
            answer.read()
        hub.hf_raise_for_status(answer)
        follows = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if start and not follows:
            moved(-start)
        _append(partial, answer.iter_bytes(), moved, anew=not follows)


def _append(partial: Path, pieces: Any, moved: Moved, *, anew: bool) -> None:
    with partial.open("wb" if anew else "ab") as file:
        for piece in pieces:
            try:
                file.write(piece)
                file.flush()  # if this process is killed, the next one resumes from here
            except OSError:
                partial.unlink(missing_ok=True)
                raise
            moved(len(piece))


def _blob(repo: Path, expected: Expected) -> Path:
    return repo / "blobs" / str(expected.digest)


def _partial(repo: Path, expected: Expected) -> Path:
    return repo / "blobs" / f"{expected.digest}{PARTIAL}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
