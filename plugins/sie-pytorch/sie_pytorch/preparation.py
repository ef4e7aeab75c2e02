"""From items to units of token ids: prompts, tokenisation, truncation.

It runs on CPU threads, several at once, and knows no tensor and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from sie_core.contracts import InvalidInput, Item, Task, Truncation
from sie_pytorch.prompts import Prompt, Prompts
from sie_pytorch.texts import item_text
from sie_pytorch.tokenizer import Ids, TextTokenizer


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row of a forward pass."""

    ids: Ids
    """int64 `[tokens]`, special tokens included."""
    excluded: int = 0
    """How many leading tokens pooling leaves out."""
    truncated: Truncation | None = None
    max_active_dims: int | None = None
    """How many entries a sparse vector of it keeps; None for what the weights' files say."""
    query: bool = False
    """Whether it is a query."""
    filled: int = 0
    """How many tokens at its end fill it up."""
    attended: bool = True
    """Whether tokens attend to what fills it up."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What queries shorter than `length` are filled up with."""

    length: int
    token: int
    attended: bool
    """Whether tokens attend to it."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens a text may have, special ones included; None for no limit."""

    default: int | None
    query: int | None
    document: int | None
    most: int | None
    """What a request may ask for: what the positions of the model allow, or else the longest of the other lengths."""
    least: int
    """What a text needs at least: its special tokens and one of its own."""

    def check(self, options: Mapping[str, Any]) -> None:
        """Check the lengths that options ask for.

        Raises:
            InvalidInput: One is out of range.
        """
        for option in ("max_seq_length", "query_max_length"):
            asked = options.get(option)
            if asked is not None and (asked < self.least or (self.most is not None and asked > self.most)):
                most = "" if self.most is None else f" to {self.most}"
                raise InvalidInput(
                    f"options.{option} is {asked}; allowed: {self.least}{most} tokens, special ones included.",
                    param=f"options.{option}",
                )

    def choose(self, task: Task) -> int | None:
        """Choose the length of the texts of `task`."""
        by_type = {"query": self.query, "document": self.document, None: self.default}
        asked = task.options.get("query_max_length") if task.input_type == "query" else None
        return asked or task.options.get("max_seq_length") or by_type[task.input_type]


class Preparation:
    """Turns items into rows, for one model."""

    def __init__(
        self,
        model: str,
        tokenizer: TextTokenizer,
        prompts: Prompts,
        lengths: Lengths,
        *,
        pools_prompt: bool,
        takes_ids: bool,
        filling: Filling | None = None,
        takes_nothing: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokenizer: Its tokenizer.
            prompts: The prompts its files declare.
            lengths: How long texts may be.
            pools_prompt: Whether pooling takes a prompt's tokens in.
            takes_ids: Whether items may hold token ids.
            filling: What short queries are filled up with.
            takes_nothing: Whether a text may have no token at all.
        """
        self._model = model
        self.tokenizer = tokenizer
        self._prompts = prompts
        self._lengths = lengths
        self._pools_prompt = pools_prompt
        self._takes_ids = takes_ids
        self._filling = filling
        self._takes_nothing = takes_nothing
        # Over the tokenizer: a cache that held this object would keep it and its tokenizer after the unload.
        self._prompt_ids = lru_cache(maxsize=256)(partial(_tokenize_prompt, tokenizer))

    def rows(self, items: Sequence[Item], task: Task) -> list[TokenRow]:
        """Make one row an item.

        Raises:
            InvalidInput: An item has no text, is too long where cutting was refused, or holds ids that are none.
        """
        self._lengths.check(task.options)
        prompt = self._prompts.choose(task, len(items))
        limit = self._lengths.choose(task)
        excluded = self._excluded(prompt)
        contents = self._contents(items, prompt)
        fields = ["text" if item.token_ids is None else "token_ids" for item in items]
        before = [partial(self._tokens_before, item, prompt) for item in items]
        return [
            self._row(f"items[{index}].{field}", content, limit, excluded, task, before[index])
            for index, (field, content) in enumerate(zip(fields, contents, strict=True))
        ]

    def _tokens_before(self, item: Item, prompt: Prompt) -> int:
        """Count the tokens of an item that end before its text begins."""
        if item.token_ids is not None or not prompt.prefix:
            return len(self._prompt_ids(prompt.prefix)) if prompt.prefix else 0
        offsets = self.tokenizer.core.encode(prompt.wrap(item.text or ""), add_special_tokens=False).offsets
        return sum(1 for _, stop in offsets if stop <= len(prompt.prefix))

    def _contents(self, items: Sequence[Item], prompt: Prompt) -> list[Ids]:
        """Tokenise every text in one call, prompt included; ids are taken as they are."""
        texts = [prompt.wrap(item_text(item, i, self._model)) for i, item in enumerate(items) if item.token_ids is None]
        tokenized = iter(self.tokenizer.content(texts))
        return [
            next(tokenized) if item.token_ids is None else self._given(item.token_ids, index, prompt)
            for index, item in enumerate(items)
        ]

    def _given(self, ids: Sequence[int], index: int, prompt: Prompt) -> Ids:
        """Check the ids of an item and put the prompt's own around them."""
        where = f"items[{index}].token_ids"
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

    def _row(
        self, where: str, content: Ids, limit: int | None, excluded: int, task: Task, before: Callable[[], int]
    ) -> TokenRow:
        framing = self.tokenizer.framing
        tokens = framing + len(content)
        if tokens == 0 and not self._takes_nothing:
            raise InvalidInput(f"{where} is empty, and {self._model} gives it no token; leave it out.", param=where)
        if self.tokenizer.foreign(content):
            raise InvalidInput(
                f"{where} holds a token, id {content.max()}, that {self._model} has no embedding of; leave it out.",
                param=where,
            )
        if limit is None or tokens <= limit:
            return self._framed(content, excluded, task)
        if task.truncate == "error":
            raise InvalidInput(
                f"{where} has {tokens} tokens, and {self._model} takes {limit}: shorten or split it, or allow "
                "truncation.",
                param=where,
                code="INPUT_TOO_LONG",
            )
        kept = limit - framing
        # Where the weights' files have texts cut at their start, the words before a text go first, as in the reference.
        stays = before() if task.truncate == "start" else 0
        if limit <= excluded or kept <= stays:
            raise InvalidInput(
                f"{where}: of the {limit} tokens it may have, the words before it take {max(stays, excluded)}, which "
                "leaves none for the text: shorten them, or allow more tokens.",
                param="options.max_seq_length",
            )
        from_start = self.tokenizer.cuts_start if task.truncate is None else task.truncate == "start"
        end = content[len(content) - kept + stays :]
        cut = np.concatenate((content[:stays], end)) if from_start else content[:kept]
        return self._framed(cut, excluded, task, Truncation(tokens, limit))

    def _framed(self, content: Ids, excluded: int, task: Task, truncated: Truncation | None = None) -> TokenRow:
        """Put the special tokens around a text, and fill a short query up."""
        ids, query, filling = self.tokenizer.frame(content), task.input_type == "query", self._filling
        row = TokenRow(ids, excluded, truncated, task.options.get("max_active_dims"), query)
        if not query or filling is None or len(ids) >= filling.length:
            return row
        filled = filling.length - len(ids)
        ids = np.concatenate((ids, np.full(filled, filling.token, dtype=np.int64)))
        return replace(row, ids=ids, filled=filled, attended=filling.attended)


def _tokenize_prompt(tokenizer: TextTokenizer, text: str) -> Ids:
    return tokenizer.content([text])[0]
