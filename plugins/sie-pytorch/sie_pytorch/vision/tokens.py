"""The tokenizers of models of images and texts, and how their rows are filled up. It knows no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import BPE

from sie_core.contracts import ModelCard, ModelLoadError
from sie_pytorch.recipe import NotUnderstoodError, TransformerSettings, has_tokenizer
from sie_pytorch.tokenizer import UNLIMITED, Ids, TextTokenizer, text_tokenizer


@dataclass(frozen=True, slots=True)
class Padding:
    """How the rows of a batch become one array."""

    token: int
    length: int | None
    """The length of every row, where the model was trained so; else that of the longest."""
    at_start: bool
    masked: bool
    """Whether the model is told which tokens fill a row up."""

    def fill(self, rows: Sequence[Ids]) -> tuple[Ids, Ids]:
        """Return ids and mask, int64 `[rows, length]` both."""
        length = self.length or max(len(row) for row in rows)
        ids: NDArray[np.int64] = np.full((len(rows), length), self.token, dtype=np.int64)
        mask: NDArray[np.int64] = np.zeros_like(ids)
        for place, row in enumerate(rows):
            used = slice(length - len(row), length) if self.at_start else slice(len(row))
            ids[place, used], mask[place, used] = row, 1
        return ids, mask


@dataclass(frozen=True, slots=True)
class PythonTokenizer(TextTokenizer):
    """A tokenizer of transformers without a Rust core: SigLIP's, on SentencePiece. Slower, and equal."""

    python: Any = None

    def content(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise, without the special tokens around each text."""
        return [np.array(ids, dtype=np.int64) for ids in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        if not texts:
            return []
        # It is told to be silent on long texts: they are cut, and the cut is told, further on.
        made = self.python(list(texts), add_special_tokens=False, truncation=False, verbose=False)
        ids: Sequence[Sequence[int]] = made["input_ids"]
        return ids


def load_tokenizer(card: ModelCard, settings: TransformerSettings) -> tuple[TextTokenizer, Any]:
    """Build the tokenizer of a checkpoint: ours, and the one of transformers that it is made from.

    Raises:
        ModelLoadError: `CONFIG`: there is none. `CORRUPT`: its files cannot be read. `DEPENDENCY`: a package to read
            them is missing.
        NotUnderstoodError: It frames texts in another way.
    """
    if not has_tokenizer(card):
        raise ModelLoadError("CONFIG", "The folder of weights holds no tokenizer: tokenizer.json is missing.")
    from transformers import AutoTokenizer

    length = {} if settings.max_seq_length is None else {"model_max_length": settings.max_seq_length}
    try:
        theirs = AutoTokenizer.from_pretrained(str(card.path), local_files_only=True, **length)
    except ImportError as error:
        raise ModelLoadError("DEPENDENCY", f"The tokenizer's files need a package: {error.name or error}.") from error
    except Exception as error:
        # Rust's errors have no class of their own, and a missing file is reported in half a dozen ways.
        raise ModelLoadError(
            "CORRUPT", f"The tokenizer cannot be built from the weights' files ({type(error).__name__}); see the log."
        ) from error
    ours = text_tokenizer(theirs, card, settings) if theirs.is_fast else _python(theirs, settings)
    vocabulary = (card.config.get("text_config") or {}).get("vocab_size")
    return replace(ours, embedded=vocabulary if isinstance(vocabulary, int) else None), theirs


def padding(tokenizer: Any, kind: str, most: int) -> Padding:
    """Say how rows are filled up, for a model of `kind` with `most` positions.

    SigLIP's vector of a text is read at its last position, whatever stands there, and it was trained with that one
    filled: transformers documents `padding="max_length"`.
    """
    length = min(most, tokenizer.model_max_length) if kind == "siglip" else None
    token = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    masked = "attention_mask" in tokenizer.model_input_names
    return Padding(token, length, kind == "siglip" and tokenizer.padding_side == "left", masked)


def _python(tokenizer: Any, settings: TransformerSettings) -> PythonTokenizer:
    if settings.do_lower_case:
        raise NotUnderstoodError(
            "its tokenizer has no implementation in the tokenizers library, and do_lower_case is on"
        )
    special = frozenset(tokenizer.all_special_ids)
    word = next(number for number in range(len(tokenizer)) if number not in special)
    framed = tokenizer.build_inputs_with_special_tokens([word])
    at = framed.index(word)
    limit = tokenizer.model_max_length
    return PythonTokenizer(
        core=Tokenizer(BPE()),
        head=np.array(framed[:at], dtype=np.int64),
        tail=np.array(framed[at + 1 :], dtype=np.int64),
        special_ids=special,
        vocabulary=len(tokenizer),
        embedded=None,
        max_length=None if limit is None or limit >= UNLIMITED else int(limit),
        cuts_start=tokenizer.truncation_side == "left",
        python=tokenizer,
    )
