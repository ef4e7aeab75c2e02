"""Converts items to token sequences for a token classifier, long texts in windows. Runs on CPU threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from sie_core.contracts import InvalidInput, Item, Task
from sie_text.entities.choice import WORDWISE, EntityChoice
from sie_text.entities.places import PlacedTokens, place
from sie_text.entities.tags import TagSet
from sie_text.entities.windows import Bounds, cut_windows
from sie_text.lengths import Lengths
from sie_text.sequences import TokenSequence
from sie_text.tokenizer import TextTokenizer, text_at

MOST_PROBABILITIES = 2**24
"""Bound on tokens times labels of a text in several windows whose labels are averaged: 64 MiB until its last window."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One window of a text, and what the request asks for: the `finish_options` of its sequence."""

    tokens: PlacedTokens
    """Those of the whole text."""
    choice: EntityChoice
    own: int
    """Number of tokens whose labels are this window's to say."""
    _: KW_ONLY
    begins: int
    """Place of the first of them in the sequence, special tokens counted."""
    alone: bool
    """Whether it is the text's only window."""

    @property
    def nbytes(self) -> int:
        """Bytes of the places of its own tokens."""
        return self.own * self.tokens.token_bytes


class EntityPreparation:
    """Makes the sequences, for one model."""

    def __init__(self, model: str, tokenizer: TextTokenizer, lengths: Lengths, tags: TagSet) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokenizer: Its tokenizer.
            lengths: Limits on the length of a window.
            tags: Its labels.
        """
        self._model = model
        self.tokenizer = tokenizer
        self._lengths = lengths
        self._tags = tags

    def sequences(self, items: Sequence[Item], task: Task) -> Iterator[Iterator[TokenSequence]]:
        """Yield the sequences of each item lazily, one a window. Nothing is cut off.

        A text without a token has one sequence, of which no token counts.

        Raises:
            InvalidInput: An item has no text, or one that cannot be tokenised; a label or an option is wrong.
        """
        self._lengths.check(task.options)
        choice = EntityChoice.of(task, self._tags, self._model)
        limit = self._lengths.choose(task)
        room = None if limit is None else limit - self.tokenizer.framing
        for index, tokens in enumerate(self._placed(items, wordwise=choice.strategy in WORDWISE)):
            self.tokenizer.require_known(tokens.ids, f"items[{index}].text", self._model)
            cuts = cut_windows(len(tokens.ids), room)
            if len(cuts) > 1 and choice.strategy == "average":
                self._check_size(tokens, f"items[{index}].text")
            yield (self._sequence(tokens, bounds, choice, alone=len(cuts) == 1) for bounds in cuts)

    def _placed(self, items: Sequence[Item], *, wordwise: bool) -> Iterator[PlacedTokens]:
        texts: deque[str] = deque()

        def read() -> Iterator[str]:
            for index, item in enumerate(items):
                texts.append(text_at(item, f"items[{index}]", self._model))
                yield texts[-1]

        for encoding in self.tokenizer.encodings(read()):
            yield place(texts.popleft(), encoding, self.tokenizer, wordwise=wordwise)

    def _check_size(self, tokens: PlacedTokens, where: str) -> None:
        most = MOST_PROBABILITIES // len(self._tags.labels)
        if len(tokens.ids) > most:
            raise InvalidInput(
                f"options.aggregation_strategy is average, and {where} has {len(tokens.ids)} tokens; {most} are "
                f"averaged over the {len(self._tags.labels)} labels of {self._model}: split the text, or ask for first "
                "or max.",
                param="options.aggregation_strategy",
            )

    def _sequence(self, tokens: PlacedTokens, bounds: Bounds, choice: EntityChoice, *, alone: bool) -> TokenSequence:
        ids = self.tokenizer.frame(tokens.ids[bounds.first : bounds.last])
        own, begins = bounds.own_last - bounds.own_first, len(self.tokenizer.head) + bounds.own_first - bounds.first
        window = Window(tokens, choice, own, begins=begins, alone=alone)
        if not len(ids):  # a forward pass needs a token; this one counts for nothing
            return TokenSequence(np.zeros(1, dtype=np.int64), expanded=1, finish_options=window)
        return TokenSequence(ids, finish_options=window)
