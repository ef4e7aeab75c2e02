"""Fetches the large files of a snapshot from the Hub, and goes on where an earlier fetch stopped.

The Hub's client begins each of them at its first byte, in a file of a new name, and leaves that behind where its
process is killed. This writes each blob to one name, made of its hash. It knows files and their URLs only; the caller
checks what came, and sees to it that nobody else fetches at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sie_core.cache.proofs import Expected, digest
from sie_core.cache.writing import link_whole
from sie_core.contracts import ModelLoadError

PARTIAL = ".sie.incomplete"
AT_ONCE = 4
"""Files of one snapshot; more would only share its bandwidth."""
_READ_TIMEOUT_S = 30.0

Moved = Callable[[int], None]


def resumable(files: Mapping[str, Expected]) -> dict[str, Expected]:
    """Choose the files of which size and SHA-256 are known: the Hub knows them of all that are large."""
    return {name: each for name, each in files.items() if each.size and each.digest and len(each.digest) == 64}


def kept_bytes(repo: Path, files: Mapping[str, Expected]) -> int:
    """Count what is here of files already, whole or in part."""
    return sum(min(each.size or 0, _size(_blob(repo, each)) or _size(_partial(repo, each))) for each in files.values())


def fetch_files(
    repo: Path, snapshot: Path, files: Mapping[str, Expected], url: Callable[[str], str], moved: Moved
) -> None:
    """Bring files that `resumable` chose into a snapshot, a few at once.

    Args:
        repo: The repository's folder in the cache; nobody else fetches into it meanwhile.
        snapshot: The folder of the commit.
        files: By name.
        url: Makes the URL of a name.
        moved: Told of bytes that are here, those of an earlier fetch included; negative where some were given up.

    Raises:
        Exception: What the Hub's client raises for a connection or an answer; what is here of the files stays.
        OSError: The disk does not take them; nothing of the file stays, so that there is room.
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
        # What an earlier fetch left was damaged, by a power cut perhaps.
        partial.unlink()
        moved(-size)
        _read(partial, 0, url, moved)
    partial.replace(blob)
    return None


def _read(partial: Path, start: int, url: str, moved: Moved) -> None:
    """Append the rest of a file to what is here of it; all of it where the answer is no rest."""
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
                file.flush()  # what a process that is killed leaves is what the next one goes on with
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
