"""Distinguishes files that describe a model, safetensors, which are read, and pickles, which are read only where a
config pins them: they can run code.

Files are classified by their names, and safetensors are checked by their header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from sie_core.contracts import is_pickled
from sie_core.contracts.model.weights import SAFETENSORS, holds_weights

_HEADER_LIMIT = 100_000_000
"""The longest header safetensors allows, in bytes."""
OTHER_FORMATS = {".gguf": "GGUF", ".onnx": "ONNX"}
"""Endings of files with weights in formats that a plugin may read and the core's own tiers do not fetch."""
PART_CONFIGS = (
    *("tokenizer_*", "generation_*", "adapter_*", "processor_*", "preprocessor_*", "video_preprocessor_*"),
    *("quantize_*", "sentence_*", "router_*"),
)
"""Names of files `…_config.json` that describe a part of a model, or an addition to one."""


PINNABLE = (
    "; or pin the file where you trust it and the model's family converts pinned pickles, as `sie-gliner` does: "
    "`sie models pin ID --pickles` writes the hash that the Hub lists"
)
"""A remedy for pickled weights."""


def describes(name: str) -> bool:
    """Whether a file of this name describes the model in its folder.

    These are `config.json`, `modules.json`, and the `<library>_config.json` of other libraries.
    """
    own = name.endswith("_config.json") and not any(fnmatchcase(name, pattern) for pattern in PART_CONFIGS)
    return own or name in ("config.json", "modules.json")


def is_described(folder: Path) -> bool:
    """Whether a file describes the model in `folder`."""
    return any(describes(file.name) and file.is_file() for file in folder.glob("*.json"))


def holds(folder: Path, weights: Iterable[str] = SAFETENSORS) -> bool:
    """Whether any file of the folder matches `weights`, patterns of names."""
    names = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return any(holds_weights(name, weights) for name in names)


def holds_pickles(folder: Path) -> bool:
    """Whether any file of the folder holds pickled weights."""
    return any(is_pickled(file.name) for file in folder.rglob("*"))


def holds_pinned(folder: Path, pickles: Iterable[str]) -> bool:
    """Whether any of the pinned `pickles` is there and holds weights."""
    return any(is_pickled(name) and (folder / name).is_file() for name in pickles)


def other_formats(folder: Path) -> str:
    """Name the formats of weights other than safetensors in a folder, with a file of each; empty if there are none."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    firsts = {
        title: next((name for name in names if name.lower().endswith(ending)), None)
        for ending, title in OTHER_FORMATS.items()
    }
    return " and ".join(f"{title} ({name})" for title, name in firsts.items() if name)


def unread_weights(name: str, folder: Path, weights: Iterable[str], pickles: Iterable[str] = ()) -> str | None:
    """Explain why the weights in a folder cannot be read; None if some match the patterns `weights`, or are pinned.

    A folder without any weights is not at fault: they may be on their way.
    """
    if holds(folder, weights) or holds_pinned(folder, pickles):
        return None
    pickled, others = holds_pickles(folder), other_formats(folder)
    return f"{no_weights(name, pickled, others=others)}." if pickled or others else None


def no_weights(name: str, pickled: bool, weights: tuple[str, ...] = SAFETENSORS, others: str = "") -> str:
    """Make the message for a model without `weights`, with the remedy."""
    if weights != SAFETENSORS:
        return f"{name} has no {' or '.join(weights)}, which its family reads"
    if pickled:
        held = "holds pickled weights only, which can run code when they are read"
    else:
        held = f"holds its weights as {others}, which no installed family reads" if others else "holds no weights"
    return (
        f"{name} {held}; safetensors are needed. Take a revision that has them (many repositories offer one as "
        "`refs/pr/…`: set `hf_revision`), or load the model once with transformers and `save_pretrained` it into a "
        f"folder that `weights_path` names{PINNABLE if pickled else ''}"
    )


def broken_safetensors(file: Path) -> str | None:
    """Return what is wrong with the size of a safetensors file, by its header; None if it is right.

    Layout: https://huggingface.co/docs/safetensors: a length, a JSON header, the tensors without gaps.

    Raises:
        OSError: It cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(_HEADER_LIMIT, size - 8):
            return "is cut off or is no safetensors file"
        try:
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            whole = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return "is no safetensors file"
    return None if size == whole else f"has {size} bytes, its header says {whole}"
