"""Counts sentence-transformers' tokens of a text, and the tokens it keeps.

It asks the library's own input module, in a copy: tokenisers of transformers change while they work, and the device's
thread uses the original.
"""

from __future__ import annotations

import copy
import threading
from itertools import chain
from typing import Any

from sie_core.contracts import Truncation

UNLIMITED = 1_000_000_000
NOT_CUT = {"text": {"truncation": False}}


def token_limit(model: Any) -> int | None:
    """Return how many tokens a `SentenceTransformer` keeps of a text; None if it keeps all."""
    limit = model.max_seq_length
    return limit if isinstance(limit, int) and 0 < limit < UNLIMITED else None


def takes_length(model: Any) -> bool:
    """Whether the input module of a `SentenceTransformer` can be told a length."""
    return hasattr(model[0], "processing_kwargs")


class TokenCounter:
    """Counts tokens; several threads may use it, and it takes one at a time."""

    def __init__(self, model: Any) -> None:
        """Copy the input module of a `SentenceTransformer`, all but its weights."""
        original = model[0]
        weights = chain(original.parameters(), original.buffers())
        self._module = copy.deepcopy(original, {id(weight): weight for weight in weights})
        self.max_length = token_limit(model)
        if self.max_length is not None:
            self._module.max_seq_length = UNLIMITED  # otherwise some modules cut before tokens can be counted
        self.takes_length = takes_length(model)
        """Whether a call may set its own length."""
        self._by_task = {task: getattr(original, f"{task}_length", None) for task in ("query", "document")}
        self.cuts_start = getattr(getattr(original, "tokenizer", None), "truncation_side", "right") == "left"
        self._lock = threading.Lock()

    def count(self, text: str, prompt: str, task: str | None, max_length: int | None) -> Truncation:
        """Count the tokens of `text` after `prompt`: all of them, and those the library keeps."""
        with self._lock:
            features = self._module.preprocess([text], prompt=prompt, task=task, processing_kwargs=NOT_CUT)
        ids = features.get("input_ids")
        tokens = len(text.split()) if ids is None else int(ids.numel())
        limit = max_length or self._by_task.get(task or "") or self.max_length
        return Truncation(tokens, tokens if limit is None else min(tokens, limit))
