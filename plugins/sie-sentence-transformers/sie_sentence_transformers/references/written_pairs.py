"""Pairs written out as one text, through transformers' own class: a classifier, or two tokens of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray
from sie_text.tokenizer import obey_file

from sie_core.contracts import LoadContext

MATCH, NO_MATCH = "yes", "no"
SEAM = "{+}"
"""Where one part of a template ends: the parts are tokenised one by one."""


class WrittenPairs:
    """A model that gets a pair as one text."""

    def __init__(self, context: LoadContext, template: str | None, instruction: str, limit: int | None) -> None:
        """Load the model.

        Args:
            context: Its weights and its profile's tokens.
            template: A text with `{query}`, `{document}` and perhaps `{instruction}`; None pairs the two texts as the
                tokenizer does.
            instruction: What stands for the last.
            limit: Tokens of a text; of a longer one the document is cut.
        """
        assert context.card is not None
        folder = str(context.card.path)
        self._causal = context.card.architectures[0].endswith("ForCausalLM")
        found = tf.AutoModelForCausalLM if self._causal else tf.AutoModelForSequenceClassification
        self._model: Any = found.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        ).eval()
        self._tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        obey_file(self._tokenizer)
        self._template, self._instruction, self._limit = template, instruction, limit
        self._tokens = self._tokenizer.convert_tokens_to_ids(_answers(context))

    @torch.inference_mode()
    def logits(self, documents: Sequence[str], query: str) -> NDArray[np.float32]:
        """Compute the logits of each document: `[documents, labels]`, or `[documents]` for a single label."""
        rows = [self._row(document, query) for document in documents]
        stacked: NDArray[np.float32] = torch.stack(rows).numpy()
        return stacked[:, 0] if stacked.shape[1] == 1 else stacked

    def _row(self, document: str, query: str) -> torch.Tensor:
        ids = self._pair(query, document) if self._template is None else self._written(query, document, self._template)
        logits: torch.Tensor = self._model(torch.tensor([ids])).logits[0]
        if not self._causal:
            return logits
        kept = logits[-1, self._tokens]
        return kept[:1] - kept[1:] if len(kept) > 1 else kept

    def _pair(self, query: str, document: str) -> list[int]:
        cut = {"truncation": "longest_first", "max_length": self._limit} if self._limit is not None else {}
        ids: list[int] = self._tokenizer(query, document, **cut)["input_ids"]
        return ids

    def _written(self, query: str, document: str, template: str) -> list[int]:
        fields = {"query": query, "instruction": self._instruction}
        ids = self._ids(template, document=document, **fields)
        if self._limit is not None and len(ids) > self._limit:
            after = self._ids(template.split("{document}")[1], **fields)
            ids = [*ids[: self._limit - len(after)], *after]
        return ids

    def _ids(self, template: str, **fields: str) -> list[int]:
        parts = [part.format(**fields) for part in template.split(SEAM)]
        return [number for part in parts for number in self._tokenizer.encode(part, add_special_tokens=False)]


def _answers(context: LoadContext) -> list[str]:
    """Name the tokens a language model answers with: the profile's, else those of its config.json, else yes and no."""
    asked = context.model.profile.loadtime
    true, false = asked.get("true_token"), asked.get("false_token")
    if true is None and false is None:
        named = context.card.config.get("classifier_from_token") if context.card is not None else None
        return list(named[::-1]) if named else [MATCH, NO_MATCH]
    return [true or MATCH, *([false] if false else [])]
