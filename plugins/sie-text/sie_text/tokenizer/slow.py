"""Tokenizers of transformers that have no Rust core: SigLIP's, on SentencePiece. Slower, and equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE

from sie_core.contracts import ModelCard
from sie_text.recipe import UNLIMITED, NotUnderstoodError, TransformerSettings
from sie_text.tokenizer.core import Ids, TextTokenizer
from sie_text.tokenizer.loading import load_tokenizer, transformers_tokenizer


@dataclass(frozen=True, slots=True)
class SlowTokenizer(TextTokenizer):
    """Asks transformers for the ids, one call at a time; its `core` is empty."""

    def content(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise, without the special tokens around each text."""
        if not texts:
            return []
        # Silence its warnings on long texts: they are cut later, and the truncation is reported.
        made = self.origin(list(texts), add_special_tokens=False, truncation=False, verbose=False)
        return [np.array(ids, dtype=np.int64) for ids in made["input_ids"]]

    def around(self, text: str, before: int, after: int) -> tuple[int, int]:
        """Count tokens as `TextTokenizer.around` does; without offsets, by tokenising the surrounding words alone."""
        whole, first, last = self.content([text, text[:before], text[len(text) - after :]])
        return _shared(whole, first), _shared(whole[::-1], last[::-1])


def _shared(ids: Ids, others: Ids) -> int:
    """Count the leading ids that are equal."""
    length = min(len(ids), len(others))
    (different,) = np.nonzero(ids[:length] != others[:length])
    return int(different[0]) if len(different) else length


def load_any_tokenizer(card: ModelCard, settings: TransformerSettings) -> TextTokenizer:
    """Build the tokenizer of a model, with or without a Rust core; see `load_tokenizer`."""
    try:
        return load_tokenizer(card, settings)
    except NotUnderstoodError:
        origin = transformers_tokenizer(card, settings)
        if origin.is_fast:
            raise
        return _slow(origin, settings)


def _slow(origin: Any, settings: TransformerSettings) -> SlowTokenizer:
    if settings.do_lower_case:
        raise NotUnderstoodError(
            "its tokenizer has no implementation in the tokenizers library, and do_lower_case is on"
        )
    special = frozenset(origin.all_special_ids)
    word = next(number for number in range(len(origin)) if number not in special)
    framed = origin.build_inputs_with_special_tokens([word])
    at, limit = framed.index(word), origin.model_max_length
    return SlowTokenizer(
        core=Tokenizer(BPE()),
        head=np.array(framed[:at], dtype=np.int64),
        tail=np.array(framed[at + 1 :], dtype=np.int64),
        special_ids=special,
        vocabulary=len(origin),
        embedded=None,
        max_length=None if limit is None or limit >= UNLIMITED else int(limit),
        cuts_start=origin.truncation_side == "left",
        takes_mask="attention_mask" in origin.model_input_names,
        pad=origin.pad_token_id,
        pads_start=origin.padding_side == "left",
        origin=origin,
    )
