"""Converts a query and documents, or texts and labels, to token sequences: pairing, templates, truncation.

It runs on several CPU threads at once, and gives token ids as NumPy arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sie_core.contracts import InvalidInput, Item, Task, Truncation
from sie_text.lengths import Lengths
from sie_text.pairs.frames import PairFrame, share
from sie_text.pairs.hypotheses import hypotheses
from sie_text.pairs.templates import SEAM, PairTemplate, format_template
from sie_text.prompts import MOST_ADDED, Prompt, Prompts
from sie_text.recipe import PairTruncation
from sie_text.sequences import TokenSequence
from sie_text.tokenizer import Ids, TextTokenizer, text_at
from sie_text.truncation import cut, cuts_start, no_room, too_long

MOST_PAIRS = 2**13
"""Pairs of an item and a label that one request may ask for."""
PAIR = "the pair"


@dataclass(frozen=True, slots=True)
class _Text:
    """One of the two texts of a pair."""

    where: str
    """Its field, for messages."""
    ids: Ids
    text: str = ""
    """The text of the ids, as far as it was read, and without the words of a template."""
    shortened: bool = False
    """Whether its middle was cut out before it was tokenised."""
    around: tuple[int, int] = (0, 0)
    """Number of its first and of its last tokens that belong to a prompt."""


class PairPreparation:
    """Turns pairs of texts into token sequences, for one model."""

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
            lengths: Limits on the length of a pair.
            truncation: Which text of a long pair is cut, unless a request says.
            template: Writes a pair as one text, unless a request has a template; None pairs the texts.
        """
        self._model = model
        self.tokenizer = tokenizer
        self._frame = frame
        self._prompts = prompts
        self._lengths = lengths
        self._truncation = truncation
        self._template = template

    def score_sequences(self, items: Sequence[Item], task: Task) -> Iterator[TokenSequence]:
        """Make one sequence per document, lazily, with the task's query.

        Raises:
            InvalidInput: A text is missing or too long, or an option is wrong.
        """
        self._lengths.check(task.options)
        assert task.query is not None
        query = text_at(task.query, "query", self._model)
        template = self._chosen_template(task)
        if template is not None:
            yield from self._written(query, items, task, template)
            return
        prompt = self._prompts.choose(task)
        first = self._query(query, prompt)
        truncation: PairTruncation = task.options.get("pair_truncation") or self._truncation
        for second in self._texts(items, limit=self._limit_beside(first, truncation, task)):
            yield self._pair(first, second, second.where, truncation, task)

    def label_sequences(self, items: Sequence[Item], task: Task) -> Iterator[list[TokenSequence]]:
        """Make the sequences of each item: its text with the hypothesis of each label after it; only the text is cut.

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
        seconds = list(self._tokenize(sentences, ["labels"] * len(sentences)))
        for premise in self._texts(items, limit=self._lengths.choose(task)):
            yield [self._pair(premise, second, premise.where, "only_first", task) for second in seconds]

    def _chosen_template(self, task: Task) -> PairTemplate | None:
        given, instruction = task.options.get("template"), task.options.get("default_instruction", "")
        if given is None:
            return self._template
        try:
            return format_template(given, instruction)
        except ValueError as problem:
            raise InvalidInput(f"options.template {problem}", param="options.template") from None

    def _query(self, text: str, prompt: Prompt) -> _Text:
        """Tokenise the query with its prompt, which is never cut."""
        wrapped = prompt.wrap(text)
        (query,) = self._tokenize([wrapped], ["query.text"])
        if not prompt.prefix and not prompt.suffix:
            return query
        return replace(query, around=self.tokenizer.around(wrapped, len(prompt.prefix), len(prompt.suffix)))

    def _limit_beside(self, first: _Text, truncation: PairTruncation, task: Task) -> int | None:
        # If both texts exceed half the room, the longer one gets the odd token, so both must be read whole.
        limit = self._lengths.choose(task)
        halves = limit is not None and 2 * len(first.ids) > limit - self._frame.framing
        return None if truncation == "longest_first" and halves else limit

    def _texts(self, items: Sequence[Item], write: Callable[[str], str] = str, *, limit: int | None) -> Iterator[_Text]:
        places = [f"items[{index}]" for index in range(len(items))]
        texts: deque[tuple[str, bool]] = deque()

        def written() -> Iterator[str]:
            for item, place in zip(items, places, strict=True):
                texts.append(self.tokenizer.shortened(text_at(item, place, self._model), limit))
                yield write(texts[-1][0])

        for each in self._tokenize(written(), [f"{place}.text" for place in places]):
            text, shortened = texts.popleft()
            yield replace(each, text=text, shortened=shortened)

    def _tokenize(self, texts: Iterable[str], where: Iterable[str]) -> Iterator[_Text]:
        for field, ids in zip(where, self.tokenizer.contents(texts), strict=True):
            self.tokenizer.require_known(ids, field, self._model)
            yield _Text(field, ids)

    def _pair(self, first: _Text, second: _Text, cuts: str, truncation: PairTruncation, task: Task) -> TokenSequence:
        """Join two texts, cut to the length of `task`; `cuts` is the field a client would shorten.

        Raises:
            InvalidInput: The pair has no token, is too long while truncation is refused, or cannot be cut enough.
        """
        limit = self._lengths.choose(task)
        tokens = self._frame.framing + len(first.ids) + len(second.ids)
        self.tokenizer.require_tokens(tokens, cuts, self._model)
        if limit is None or tokens <= limit:
            return TokenSequence(*self._frame.join(first.ids, second.ids))
        room = limit - self._frame.framing
        kept = share(len(first.ids), len(second.ids), room, truncation, fixed=sum(first.around))
        if kept is None:
            raise self._uncuttable(first, second, truncation, tokens, limit)
        if task.truncate == "error":
            raise too_long(cuts, self._model, tokens, limit, PAIR, more=first.shortened or second.shortened)
        start, (before, after) = cuts_start(task, self.tokenizer), first.around
        parts = (
            cut(first.ids, kept[0], start=start, before=before, after=after),
            cut(second.ids, kept[1], start=start),
        )
        return TokenSequence(
            *self._frame.join(*parts), truncated=Truncation(tokens, limit, first.shortened or second.shortened)
        )

    def _uncuttable(
        self, first: _Text, second: _Text, truncation: PairTruncation, tokens: int, limit: int
    ) -> InvalidInput:
        """Make the error that says why cutting the text that may be cut does not help."""
        if truncation == "longest_first":
            return no_room(first.where, limit, self._frame.framing + sum(first.around))
        whole = first if truncation == "only_second" else second
        more = first.shortened or second.shortened
        return too_long(whole.where, self._model, tokens, limit, PAIR, more=more, kept=True)

    def _written(
        self, query: str, items: Sequence[Item], task: Task, template: PairTemplate
    ) -> Iterator[TokenSequence]:
        instruction = task.instruction
        if instruction is None:
            instruction = task.options.get("default_instruction") or self._prompts.choose(task).prefix or None
        around = template(query, instruction)
        added = len(around.prefix) + len(around.suffix)
        if added * len(items) > MOST_ADDED:
            raise InvalidInput(
                f"query.text puts {added} characters around each of {len(items)} documents; {MOST_ADDED} are "
                "allowed around all together: shorten it or send fewer documents.",
                param="query.text",
            )
        heads, tails = around.prefix.split(SEAM), around.suffix.split(SEAM)
        beside = replace(around, prefix=heads.pop(), suffix=tails.pop(0))
        ends = [self._joined(parts) for parts in (heads, tails)]
        for written in self._texts(items, beside.wrap, limit=self._lengths.choose(task)):
            yield self._written_one(written, beside, (ends[0], ends[1]), task)

    def _joined(self, parts: Sequence[str]) -> Ids:
        """Tokenise parts one by one, and put their tokens together."""
        found = [each.ids for each in self._tokenize(parts, ["query.text"] * len(parts))]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _written_one(self, written: _Text, beside: Prompt, ends: tuple[Ids, Ids], task: Task) -> TokenSequence:
        """Join the parts of a pair. If the pair is too long, cut its document.

        Args:
            written: The tokens of the part that holds the document.
            beside: The words around the document in that part.
            ends: The tokens of the parts before and after it.
            task: The request.

        Raises:
            InvalidInput: It has no token, is too long while truncation is refused, or the words around the document
                leave no room for it.
        """
        limit, ids = self._lengths.choose(task), np.concatenate((ends[0], written.ids, ends[1]))
        self.tokenizer.require_tokens(len(ids), written.where, self._model)
        if limit is None or len(ids) <= limit:
            return TokenSequence(ids)
        if task.truncate == "error":
            raise too_long(written.where, self._model, len(ids), limit, PAIR, more=written.shortened)
        text = beside.wrap(written.text)
        before, after = self.tokenizer.around(text, len(beside.prefix), len(beside.suffix))
        before, after = before + len(ends[0]), after + len(ends[1])
        if limit <= before + after:
            raise too_long("query.text", self._model, len(ids), limit, PAIR, more=written.shortened, kept=True)
        kept = cut(ids, limit, start=cuts_start(task, self.tokenizer), before=before, after=after)
        return TokenSequence(kept, truncated=Truncation(len(ids), limit, written.shortened))
