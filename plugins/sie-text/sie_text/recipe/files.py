"""Checked reading of a checkpoint's files: single fields of the modules' configs, and the folders below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from sie_core.contracts import Claim, ClaimFunction, ModelCard, NoClaim
from sie_text.recipe.settings import NotUnderstoodError

TOKENS = "token_embeddings"
SENTENCE = "sentence_embedding"

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "tekken.json", "*.tiktoken")
"""Names of the files a tokenizer of transformers is built from."""

WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json")
"""Names of the file with a transformer's weights, and of that which lists the files they are spread over."""

UNLIMITED = 1_000_000_000
"""A tokenizer without a length states a number beyond this one (transformers: 1e30)."""


def needed(config: Mapping[str, Any], key: str, where: str) -> int:
    """Read a size that must be there.

    Raises:
        NotUnderstoodError: The file is missing, or not of the expected form.
    """
    value = size(config, key, where)
    if value is None:
        raise NotUnderstoodError(f"the config of its {where} lacks {key}")
    return value


def size(config: Mapping[str, Any], key: str, where: str) -> int | None:
    """Read a size that may be missing.

    Raises:
        NotUnderstoodError: It is no whole number from 1.
    """
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotUnderstoodError(f"{where}: {key} is {value!r}, not a whole number from 1")
    return value


def require_features(config: Mapping[str, Any], kind: str, wanted: str, default: str) -> None:
    """Check the input and output of a module.

    Raises:
        NotUnderstoodError: Another feature than `wanted`.
    """
    read = config.get("module_input_name") or default
    written = config.get("module_output_name") or read
    if others := sorted(map(str, {read, written} - {wanted})):
        raise NotUnderstoodError(f"its {kind} works on {', '.join(others)}")


def has_tokenizer(card: ModelCard) -> bool:
    """Whether the files of a tokenizer are there; without them transformers builds one with an empty vocabulary."""
    return any(fnmatch(name, pattern) for name in card.files if "/" not in name for pattern in TOKENIZER_FILES)


def misnamed_weights(card: ModelCard) -> str | None:
    """Explain why transformers would not find the safetensors of a checkpoint; None if it does or there are none.

    Files with other prefixes, such as those of heads, do not count.
    """
    names = [PurePosixPath(name).name for name in card.files]
    if any(name in WEIGHTS_FILES for name in names):
        return None
    misnamed = next((name for name in names if fnmatch(name, "model*.safetensors")), None)
    if misnamed is None:
        return None
    if fnmatch(misnamed, "model-*-of-*.safetensors"):
        return f"{misnamed} is a part of its weights, and {WEIGHTS_FILES[1]}, which lists the parts, is missing: add it"
    return f"{misnamed} is no name by which transformers looks for weights: rename it to {WEIGHTS_FILES[0]}"


def of_found_weights(claims: ClaimFunction) -> ClaimFunction:
    """Make a claim function that gives the reason in place of a claim on weights that would not be found."""

    def claim(card: ModelCard) -> Claim | NoClaim | None:
        found = claims(card)
        fault = misnamed_weights(card) if isinstance(found, Claim) else None
        return found if fault is None else NoClaim(fault)

    return claim


def card_below(card: ModelCard, folder: Path, **fields: Any) -> ModelCard:
    """Make the card of a checkpoint, or of one of its folders; `fields` replace the card's own."""
    prefix = "" if folder == card.path else f"{folder.relative_to(card.path).as_posix()}/"
    files = tuple(name.removeprefix(prefix) for name in card.files if name.startswith(prefix))
    return replace(card, path=folder, files=files, **fields)
