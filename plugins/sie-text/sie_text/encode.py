"""Converts items to token sequences: prompts, tokenisation, truncation. Several threads may prepare at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from sie_core.contracts import InvalidInput, Item, LoadContext, Task, Truncation
from sie_text.lengths import Lengths
from sie_text.loading import needed_card
from sie_text.prompts import Prompt, Prompts
from sie_text.sequences import TokenSequence
from sie_text.tokenizer import Ids, TextTokenizer, text_at
from sie_text.truncation import cut, cuts_start, no_room, too_long

__all__ = ["Expansion", "TextPreparation"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The tokens that expand queries shorter than `length`."""

    length: int
    token: int
    attended: bool
    """Whether tokens attend to it."""


class _Read(NamedTuple):
    """The tokens of a text with its prompt."""

    ids: Ids
    text: str | None
    """The text, without the prompt; None if the ids were given."""
    shortened: bool = False
    """Whether its middle was cut out before it was tokenised."""


class TextPreparation:
    """Turns items into token sequences, for one model."""

    def __init__(
        self,
        model: str,
        tokenizer: TextTokenizer,
        prompts: Prompts,
        lengths: Lengths,
        *,
        pools_prompt: bool,
        takes_ids: bool,
        expansion: Expansion | None = None,
        allows_empty: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokenizer: Its tokenizer.
            prompts: The prompts its files declare.
            lengths: Limits on the length of texts.
            pools_prompt: Whether pooling takes a prompt's tokens in.
            takes_ids: Whether items may hold token ids.
            expansion: Expansion of short queries; None for none.
            allows_empty: Whether a text may have no tokens.
        """
        self._model = model
        self.tokenizer = tokenizer
        self.prompts = prompts
        self._lengths = lengths
        self._pools_prompt = pools_prompt
        self._takes_ids = takes_ids
        self._expansion = expansion
        self._allows_empty = allows_empty
        # Over the tokenizer: a cache that held this object would keep it and its tokenizer after the unload.
        self._prompt_ids = lru_cache(maxsize=256)(partial(_tokenize_prompt, tokenizer))

    @classmethod
    def bare(
        cls, context: LoadContext, tokenizer: TextTokenizer, limit: int | None, most: int | None = None
    ) -> TextPreparation:
        """Make the preparation of a model that looks tokens up: there are no special tokens, and a text may have no
        tokens.

        Args:
            context: The model to load: prompts are those of its card.
            tokenizer: Its tokenizer, loaded as `bare`.
            limit: Tokens that texts are cut to; None for no limit.
            most: The largest limit that a request may set.

        Raises:
            ModelLoadError: `CONFIG`: the card's default prompt is not among its prompts.
        """
        return cls(
            context.model.id,
            tokenizer,
            Prompts.of(needed_card(context)),
            Lengths(limit, limit, limit, most=most, least=1),
            pools_prompt=True,
            takes_ids=context.model.config.accept_token_ids,
            allows_empty=True,
        )

    def sequences(self, items: Sequence[Item], task: Task, places: Sequence[int] = ()) -> Iterator[TokenSequence]:
        """Make one sequence per item, lazily.

        Args:
            items: The items.
            task: The task of the items.
            places: Index of each item in the request, for messages; empty if these are all of its items.

        Raises:
            InvalidInput: An item has no text, is too long while truncation is refused, or has invalid ids.
        """
        self._lengths.check(task.options)
        prompt = self.prompts.choose(task, len(items))
        limit, excluded = self._lengths.choose(task), self._excluded(prompt)
        where = [f"items[{place}]" for place in places or range(len(items))]
        for item, place, read in zip(items, where, self._read(items, where, prompt, limit), strict=True):
            field = f"{place}.text" if item.token_ids is None else f"{place}.token_ids"
            content, truncated = read.ids, None
            self._check(field, content)
            tokens = self.tokenizer.framing + len(content)
            if limit is not None and tokens > limit:
                content = self._cut(field, read, limit, self._around(read, prompt), excluded, task)
                truncated = Truncation(tokens, limit, at_least=read.shortened)
            yield self._framed(content, excluded, task, truncated)

    def _read(self, items: Sequence[Item], where: Sequence[str], prompt: Prompt, limit: int | None) -> Iterator[_Read]:
        """Tokenise the texts, prompt included; ids are taken as they are."""
        texts: deque[tuple[str, bool]] = deque()

        def wrapped() -> Iterator[str]:
            for item, place in zip(items, where, strict=True):
                if item.token_ids is None:
                    texts.append(self.tokenizer.shortened(text_at(item, place, self._model), limit))
                    yield prompt.wrap(texts[-1][0])

        tokenized = self.tokenizer.contents(wrapped())
        for item, place in zip(items, where, strict=True):
            if item.token_ids is not None:
                yield _Read(self._given(item.token_ids, f"{place}.token_ids", prompt), None)
            else:
                ids = next(tokenized)
                yield _Read(ids, *texts.popleft())

    def _given(self, ids: Sequence[int], where: str, prompt: Prompt) -> Ids:
        """Check the ids of an item and put the prompt's own around them."""
        if not self._takes_ids:
            raise InvalidInput(
                f"{where}: {self._model} takes texts, not token ids: send `text`, or set `accept_token_ids` in the "
                "model's config.",
                param=where,
            )
        vocabulary = self.tokenizer.vocabulary
        if not ids or min(ids) < 0 or max(ids) >= vocabulary:
            raise InvalidInput(
                f"{where} must hold ids of the model's own tokenizer, from 0 to {vocabulary - 1}; it holds "
                f"{'none' if not ids else f'ids from {min(ids)} to {max(ids)}'}.",
                param=where,
            )
        content = self.tokenizer.unframe(np.array(ids, dtype=np.int64))
        return np.concatenate((self._prompt_ids(prompt.prefix), content, self._prompt_ids(prompt.suffix)))

    def _excluded(self, prompt: Prompt) -> int:
        if self._pools_prompt or not prompt.prefix:
            return 0
        return self.tokenizer.prompt_length(self._prompt_ids(prompt.prefix), self._lengths.default)

    def _check(self, where: str, content: Ids) -> None:
        if not self._allows_empty:
            self.tokenizer.require_tokens(self.tokenizer.framing + len(content), where, self._model)
        self.tokenizer.require_known(content, where, self._model)

    def _around(self, read: _Read, prompt: Prompt) -> tuple[int, int]:
        """Count the tokens of a prompt that stand before and after a text."""
        if not prompt.prefix and not prompt.suffix:
            return 0, 0
        prefix, suffix, content = self._prompt_ids(prompt.prefix), self._prompt_ids(prompt.suffix), read.ids
        apart = (content[: len(prefix)], content[len(content) - len(suffix) :])
        if read.text is None or all(map(np.array_equal, apart, (prefix, suffix))):
            return len(prefix), len(suffix)
        # The prompt and the text merged into one token where they touch, so use the tokens of both together.
        return self.tokenizer.around(prompt.wrap(read.text), len(prompt.prefix), len(prompt.suffix))

    def _cut(self, where: str, read: _Read, limit: int, around: tuple[int, int], excluded: int, task: Task) -> Ids:
        """Cut a text that is too long; see `sie_text.truncation`."""
        tokenizer, (before, after) = self.tokenizer, around
        if task.truncate == "error":
            raise too_long(where, self._model, tokenizer.framing + len(read.ids), limit, more=read.shortened)
        room, unpooled = limit - tokenizer.framing, excluded - len(tokenizer.head)
        if room <= max(before, unpooled) + after:
            raise no_room(where, limit, tokenizer.framing + max(before, unpooled) + after)
        return cut(read.ids, room, start=cuts_start(task, tokenizer), before=before, after=after)

    def _framed(self, content: Ids, excluded: int, task: Task, truncated: Truncation | None = None) -> TokenSequence:
        """Put the special tokens around a text, and fill a short query up."""
        ids, query, expansion = self.tokenizer.frame(content), task.input_type == "query", self._expansion
        whole = TokenSequence(
            ids, None, excluded, truncated=truncated, max_active_dims=task.options.get("max_active_dims"), query=query
        )
        if not query or expansion is None or len(ids) >= expansion.length:
            return whole
        expanded = expansion.length - len(ids)
        ids = np.concatenate((ids, np.full(expanded, expansion.token, dtype=np.int64)))
        return replace(whole, ids=ids, expanded=expanded, attended=expansion.attended)


def _tokenize_prompt(tokenizer: TextTokenizer, text: str) -> Ids:
    return tokenizer.content([text])[0]
