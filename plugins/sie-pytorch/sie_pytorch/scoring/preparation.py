"""From a query and documents, or texts and labels, to rows of token ids: pairing, templates, truncation.

It runs on CPU threads, several at once, and knows no tensor and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sie_core.contracts import InvalidInput, Item, Task, Truncation
from sie_pytorch.preparation import Lengths
from sie_pytorch.prompts import MOST_ADDED, Prompts
from sie_pytorch.scoring.hypotheses import hypotheses
from sie_pytorch.scoring.layout import PairTruncation
from sie_pytorch.scoring.pairs import PairFrame, cut, share
from sie_pytorch.scoring.templates import PairTemplate, Wrapping, format_template
from sie_pytorch.texts import text_at
from sie_pytorch.tokenizer import Ids, TextTokenizer

MOST_PAIRS = 2**13
"""Pairs of an item and a label that one request may ask for."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair, as one row of a forward pass."""

    ids: Ids
    """int64 `[tokens]`, special tokens included."""
    types: Ids
    """int64 `[tokens]`: the token types."""
    truncated: Truncation | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """One of the two texts of a pair."""

    where: str
    """Its field, for messages."""
    ids: Ids


class PairPreparation:
    """Turns pairs of texts into rows, for one model."""

    def __init__(
        self,
        model: str,
        tokenizer: TextTokenizer,
        frame: PairFrame,
        prompts: Prompts,
        lengths: Lengths,
        truncation: PairTruncation,
        template: PairTemplate | None,
    ) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokenizer: Its tokenizer.
            frame: The special tokens of a pair.
            prompts: The prompts its files declare, for queries.
            lengths: How long a pair may be.
            truncation: Which text of a long pair is cut, where a request does not say.
            template: What writes a pair out as one text, where a request has no template; None pairs the texts.
        """
        self._model = model
        self.tokenizer = tokenizer
        self._frame = frame
        self._prompts = prompts
        self._lengths = lengths
        self._truncation = truncation
        self._template = template

    def score_rows(self, items: Sequence[Item], task: Task) -> list[PairRow]:
        """Make one row a document, with the task's query.

        Raises:
            InvalidInput: A text is missing or too long, or an option is wrong.
        """
        self._lengths.check(task.options)
        assert task.query is not None
        query = text_at(task.query, "query", self._model)
        documents = [text_at(item, f"items[{index}]", self._model) for index, item in enumerate(items)]
        template = self._chosen_template(task)
        if template is not None:
            return self._written_rows(query, documents, task, template)
        prompt = self._prompts.choose(task)
        first = self._tokenize([prompt.wrap(query)], ["query.text"])[0]
        seconds = self._tokenize(documents, [f"items[{index}].text" for index in range(len(items))])
        truncation: PairTruncation = task.options.get("pair_truncation") or self._truncation
        return [self._pair(first, second, second.where, truncation, task) for second in seconds]

    def label_rows(self, items: Sequence[Item], task: Task) -> list[list[PairRow]]:
        """Make the rows of each item: its text as the premise, each label's hypothesis after it. Texts alone are cut.

        Raises:
            InvalidInput: A text is missing or too long, an option is wrong, or there are too many pairs.
        """
        self._lengths.check(task.options)
        if len(items) * len(task.labels) > MOST_PAIRS:
            raise InvalidInput(
                f"{len(items)} items with {len(task.labels)} labels are {len(items) * len(task.labels)} pairs of "
                f"texts; {MOST_PAIRS} are allowed in a request: send fewer items or labels.",
                param="labels",
            )
        sentences = hypotheses(task)
        texts = [text_at(item, f"items[{index}]", self._model) for index, item in enumerate(items)]
        premises = self._tokenize(texts, [f"items[{index}].text" for index in range(len(items))])
        seconds = self._tokenize(sentences, ["labels"] * len(sentences))
        return [
            [self._pair(premise, second, premise.where, "only_first", task) for second in seconds]
            for premise in premises
        ]

    def _chosen_template(self, task: Task) -> PairTemplate | None:
        given, instruction = task.options.get("template"), task.options.get("default_instruction", "")
        if given is None:
            return self._template
        try:
            return format_template(given, instruction)
        except ValueError as problem:
            raise InvalidInput(f"options.template {problem}", param="options.template") from None

    def _tokenize(self, texts: Sequence[str], where: Sequence[str]) -> list[_Text]:
        tokenized = [_Text(*each) for each in zip(where, self.tokenizer.content(texts), strict=True)]
        for text in tokenized:
            self._refuse_foreign(text.ids, text.where)
        return tokenized

    def _refuse_foreign(self, ids: Ids, where: str) -> None:
        if self.tokenizer.foreign(ids):
            raise InvalidInput(
                f"{where} holds a token, id {ids.max()}, that {self._model} has no embedding of; leave it out.",
                param=where,
            )

    def _pair(self, first: _Text, second: _Text, cuts: str, truncation: PairTruncation, task: Task) -> PairRow:
        """Join two texts, cut to the length of `task`; `cuts` is the field a client would shorten."""
        limit = self._lengths.choose(task)
        tokens = self._frame.framing + len(first.ids) + len(second.ids)
        if limit is None or tokens <= limit:
            return PairRow(*self._frame.join(first.ids, second.ids))
        kept = share(len(first.ids), len(second.ids), limit - self._frame.framing, truncation)
        if kept is None:
            other = first.where if truncation == "only_second" else second.where
            raise self._too_long(other, tokens, limit)
        if task.truncate == "error":
            raise self._too_long(cuts, tokens, limit)
        from_start = self.tokenizer.cuts_start if task.truncate is None else task.truncate == "start"
        parts = [cut(*part, from_start=from_start) for part in zip((first.ids, second.ids), kept, strict=True)]
        return PairRow(*self._frame.join(parts[0], parts[1]), Truncation(tokens, limit))

    def _too_long(self, where: str, tokens: int, limit: int) -> InvalidInput:
        return InvalidInput(
            f"{where}: the pair it is part of has {tokens} tokens, and {self._model} takes {limit}: shorten or split "
            "it, or allow truncation.",
            param=where,
            code="INPUT_TOO_LONG",
        )

    def _written_rows(self, query: str, documents: Sequence[str], task: Task, template: PairTemplate) -> list[PairRow]:
        instruction = task.instruction
        if instruction is None:
            instruction = task.options.get("default_instruction") or self._prompts.choose(task).prefix or None
        around = template(query, instruction)
        added = len(around.before) + len(around.after)
        if added * len(documents) > MOST_ADDED:
            raise InvalidInput(
                f"query.text puts {added} characters around each of {len(documents)} documents; {MOST_ADDED} are "
                "allowed around all together: shorten it or send fewer documents.",
                param="query.text",
            )
        texts = [around.wrap(document) for document in documents]
        rows = self._tokenize(texts, [f"items[{index}].text" for index in range(len(documents))])
        return [self._written_row(row, text, around, task) for row, text in zip(rows, texts, strict=True)]

    def _written_row(self, row: _Text, text: str, around: Wrapping, task: Task) -> PairRow:
        """Cut the document alone out of a text that is too long."""
        limit, ids, truncated = self._lengths.choose(task), row.ids, None
        if limit is not None and len(ids) > limit:
            truncated = Truncation(len(ids), limit)
            if task.truncate == "error":
                raise self._too_long(row.where, len(ids), limit)
            before, after = self._tokens_around(text, around)
            room = limit - before - after
            if room < 1:
                raise self._too_long("query.text", len(ids), limit)
            document = cut(ids[before : len(ids) - after], room, from_start=task.truncate == "start")
            ids = np.concatenate((ids[:before], document, ids[len(ids) - after :]))
        return PairRow(ids, np.zeros(len(ids), dtype=np.int64), truncated)

    def _tokens_around(self, text: str, around: Wrapping) -> tuple[int, int]:
        """Count the tokens that end before the document, and those that begin after it."""
        offsets = self.tokenizer.core.encode(text, add_special_tokens=False).offsets
        begins, ends = len(around.before), len(text) - len(around.after)
        before = sum(1 for _, stop in offsets if stop <= begins)
        after = sum(1 for start, _ in offsets if start >= ends)
        return before, after
