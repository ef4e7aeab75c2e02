"""Proof at load of what sentence-transformers loaded: that its weights are the files', and its texts do not touch.

It calls only public methods of the library.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from sie_pytorch.forward import account_for, position_limit, refuse_unheeded
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sie_core.contracts import DeviceLost, InferenceError, ModelCard, ModelLoadError, OutOfDeviceMemory, device_fault

PROBE_WORDS = (1, 4, 120)
"""Words of the probe texts: one beyond the windows and chunks of small models."""
WORDS = ("the", "engine", "reads", "what", "a", "document", "says", "and", "ranks", "it")
"""For models that know every word, in parts."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Largest relative error of a vector, by the precision computed in."""
SHORTEST = 16
"""Letters, and words of one letter, that are tried one after another to find the shortest text that a model takes."""

Encode = Callable[[Sequence[str]], torch.Tensor]
"""Encodes texts in one batch to vectors `[texts, dims]`."""


@dataclass(frozen=True, slots=True)
class FoundOut:
    """The result of the proof."""

    alone: str | None
    """Why texts are encoded one by one; None if batches give the same vectors."""
    least: int
    """Tokens of the shortest text that the model takes."""


def transformers_of(model: Any) -> Iterator[Any]:
    """Yield the transformers models among the modules of a `SentenceTransformer`, each as a whole."""
    inner: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and not name.startswith(inner):
            inner = (*inner, f"{name}.")
            yield module


def require_all_weights(model: Any, card: ModelCard) -> None:
    """Refuse transformers models with weights missing in the files: these were initialised at random.

    Raises:
        ModelLoadError: `CORRUPT`, naming some; `CONFIG`: its positions are not those its config names.
    """
    folders = [PurePosixPath(name).parent for name in card.files if PurePosixPath(name).name == "config.json"]
    for part in transformers_of(model):
        refuse_unheeded(part.config)
        for folder in folders:
            if _model_type(card.path / folder) == part.config.model_type:
                _require_weights(part, card.path / folder)


def _model_type(folder: Path) -> str | None:
    """Return the type of the transformers model in a folder; None if it holds none."""
    stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    holds_weights = any(folder.glob("*.safetensors"))
    return stated.get("model_type") if holds_weights and isinstance(stated, dict) else None


def _require_weights(part: Any, folder: Path) -> None:
    again, report = type(part).from_pretrained(
        folder,
        config=copy.deepcopy(part.config),
        dtype="auto",
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
    )
    # No module of the library reads the output of transformers' pooler.
    missing = {key for key in report["missing_keys"] if not key.startswith("pooler.")}
    account_for(again, {**report, "missing_keys": missing})


def positions_of(model: Any) -> int | None:
    """Return how many tokens the positions of a model's transformers allow; None if they set no limit."""
    limits = [position_limit(part) for part in transformers_of(model)]
    return min((limit for limit in limits if limit is not None), default=None)


def probe_texts(model: Any) -> list[str]:
    """Write texts of very different lengths, of words that the model knows: a table of words knows no others."""
    tokenizer: Any = getattr(model[0], "tokenizer", None)
    knows_any = not hasattr(tokenizer, "get_vocab") or isinstance(tokenizer, PreTrainedTokenizerBase)
    vocabulary = [] if knows_any else [str(word) for word in tokenizer.get_vocab()]
    known = sorted(word for word in vocabulary if word.isascii() and word.isalpha())
    words = known[:: max(1, len(known) // len(WORDS))] or WORDS
    return [" ".join(words[place % len(words)] for place in range(length)) for length in PROBE_WORDS]


def find_out(texts: Sequence[str], encode: Encode, count: Callable[[str], int]) -> FoundOut:
    """Encode texts one by one, twice, and together.

    Args:
        texts: Of different lengths.
        encode: Encodes texts in one batch.
        count: Counts the tokens that are kept of a text.

    Raises:
        ModelLoadError: `CONFIG`: it fails on every text, or a text has other vectors each time.
        OutOfDeviceMemory, DeviceLost: The device.
    """
    shortest = _shortest_text(encode)
    least = count(shortest)
    texts = [shortest, *(text for text in texts if count(text) > least)]
    alone, again = (torch.cat([encode([text]) for text in texts]) for _ in range(2))
    if (changed := _error(again, alone)) > TOLERANCE[alone.dtype]:
        raise ModelLoadError(
            "CONFIG", f"It gives a text another vector each time (they differ by {changed:.1e}): it draws at random."
        )
    return FoundOut(_alone(encode, texts, alone), least)


def _alone(encode: Encode, texts: Sequence[str], vectors: torch.Tensor) -> str | None:
    """Explain why texts must be encoded one by one, given their vectors alone, `[texts, dims]`; None if batches are
    right.
    """
    try:
        error = _error(encode(texts), vectors)
    except Exception as fault:  # a class may fail on a padded batch in any way
        _reraise(fault)
        return f"one text a call, as its class fails on a padded batch ({type(fault).__name__})"
    if error <= TOLERANCE[vectors.dtype]:
        return None
    return f"one text a call, as a text's vector changes by {error:.1e} in a batch"


def _shortest_text(encode: Encode) -> str:
    """Find the shortest text that a model does not fail on; some classes want as many tokens as they join in one.

    Raises:
        ModelLoadError: `CONFIG`: it fails on all.
    """
    last: Exception | None = None
    for length in range(SHORTEST):
        for text in ("a" * length, " ".join("a" * length)):  # a tokenizer may make one token of any word
            try:
                encode([text])
            except KeyError:  # a module does not find its input, whatever the text
                raise
            except Exception as fault:  # a class may fail on a short text in any way
                _reraise(fault)
                last = fault
            else:
                return text
    raise ModelLoadError(
        "CONFIG",
        f"Its class fails on every text, alone too ({type(last).__name__}); sentence-transformers cannot use it.",
    ) from last


def _reraise(fault: Exception) -> None:
    """Raise again errors of the device, or our own."""
    worded = isinstance(fault, (InferenceError, ModelLoadError, OutOfDeviceMemory, DeviceLost))
    if worded or device_fault(fault) is not None:
        raise fault


def _error(vectors: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the largest ‖vector - expected‖ / ‖expected‖; an empty text may have none of numbers."""
    difference = (vectors.double() - expected.double()).norm(dim=-1).nan_to_num()
    return float((difference / expected.double().norm(dim=-1).nan_to_num().clamp(min=1e-12)).max())
