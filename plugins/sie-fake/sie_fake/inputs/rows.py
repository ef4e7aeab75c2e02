"""Converts items to the rows of a run: splitting into words, prompts, truncation, windows, pairs with a query.

A token of the fakes is a word between white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

from sie_core.contracts import InvalidInput, Item, Task, Token, Truncation
from sie_fake.faults import crash, exhaust, wait_while_held
from sie_fake.inputs.media import NO_MEDIA, MediaRow, read_media

PROMPTS = {"query": "query:", "document": "passage:"}
_WORD = re.compile(r"\S+")


def show_words(text: str, most: int | None) -> list[Token]:
    """List the words of a text, or its first `most` ones, as tokens; their ids are hashes."""
    words = islice(_WORD.finditer(text), most)
    return [Token(crc32(word[0].encode()), word[0], False, start=word.start(), stop=word.end()) for word in words]


@dataclass(frozen=True, slots=True)
class Row:
    """The payload of a unit: a text, a window of a text, or either with the query; plus the media of the item."""

    text: str
    words: tuple[str, ...]
    task: Task
    query: tuple[str, ...] = ()
    """The words of the query, in a pair."""
    offset: int = 0
    """Start of `text` in the item's text, for `extract`, which reads the original text."""
    media: MediaRow = NO_MEDIA
    ballast: bytes = b""
    """Takes memory, as the pixels of a picture would."""

    @property
    def cost(self) -> int:
        """Words of the text and the query, 1 an image, samples / chunk of audio; at least 1."""
        return max(1, self.tokens + self.media.cost)

    @property
    def tokens(self) -> int:
        """Words of the text and the query."""
        return len(self.query) + len(self.words)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the items of one model."""

    model: str
    length: int
    """The most words of a text, or of a pair."""
    chunk: int
    """Samples of audio for one unit of cost."""
    image_hold: str | None = None
    """A file; an item with images waits while it exists."""

    def rows(
        self, item: Item, where: str, task: Task, query: Sequence[str] = ()
    ) -> tuple[list[Row], Truncation | None]:
        """Make the rows of one item and report its truncation.

        Raises:
            InvalidInput: The item holds nothing or something unreadable, or is too long and `truncate` is `error`.
        """
        if item.images:
            wait_while_held(self.image_hold)
        media = read_media(item, where, self.chunk)
        words = self._words(item, where, task, bool(media.words))
        kept, truncated = self._cut(words, where, task, len(query))
        size = task.options.get("window") or len(kept) or 1
        windows = [kept[start : start + size] for start in range(0, len(kept), size)] or [[]]
        rows = [self._row(item, window, task, query) for window in windows]
        rows[0] = Row(rows[0].text, rows[0].words, task, tuple(query), rows[0].offset, media)
        return rows, truncated

    def query(self, task: Task) -> list[str]:
        """Split the query of a `score`; its media count as words.

        Raises:
            InvalidInput: It holds nothing, or something unreadable.
        """
        if task.query is None:
            return []
        media = read_media(task.query, "query", self.chunk)
        words = self._words(task.query, "query", task, bool(media.words))
        return [*(word for word, _ in words), *media.words][: self.length]

    def _words(self, item: Item, where: str, task: Task, has_media: bool) -> list[tuple[str, int]]:
        """Split a text into its words, prompts included, each with its place in the text."""
        if item.token_ids is not None:
            text = " ".join(str(token) for token in item.token_ids)
        elif item.text is not None or has_media:
            text = item.text or ""
        else:
            raise InvalidInput(
                "the item has no text, image or audio that a fake model could read", param=f"{where}.text"
            )
        crash(text, task.options.get("prepare_crash_text"), "prepare")
        exhaust(text, task.options.get("prepare_oom_text"), "prepare")
        words = [(match.group(), match.start()) for match in _WORD.finditer(text)]
        if task.operation == "extract":
            return words
        prompt = PROMPTS[task.input_type] if task.input_type else ""
        words = [*((word, 0) for word in f"{task.instruction or ''} {prompt}".split()), *words]
        return [(word.lower(), start) for word, start in words] if task.options.get("lowercase") else words

    def _cut(
        self, words: list[tuple[str, int]], where: str, task: Task, beside: int
    ) -> tuple[list[tuple[str, int]], Truncation | None]:
        """Cut a text so that it fits with the words of a query."""
        room = max(0, self.length - beside)
        if len(words) <= room:
            return words, None
        if task.truncate == "error":
            raise InvalidInput(
                f"the text has {len(words) + beside} tokens and {self.model} takes {self.length}; "
                "shorten it or allow truncation",
                param=f"{where}.text",
                code="INPUT_TOO_LONG",
            )
        kept = words[len(words) - room :] if task.truncate == "start" else words[:room]
        return kept, Truncation(len(words) + beside, room + beside)

    def _row(self, item: Item, window: Sequence[tuple[str, int]], task: Task, query: Sequence[str]) -> Row:
        words = tuple(word for word, _ in window)
        if task.operation != "extract" or not window:
            return Row(" ".join(words), words, task, tuple(query))
        begin, (last, at) = window[0][1], window[-1]
        return Row((item.text or "")[begin : at + len(last)], words, task, tuple(query), begin)
