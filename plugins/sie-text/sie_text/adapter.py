"""Shared by the adapters of text models: tokenizing texts, and decoding tokens to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sie_core.contracts import Adapter, Task, Token, Unit
from sie_text.prompts import Prompts
from sie_text.tokenizer import TextTokenizer

__all__ = ["HostAdapter", "TextAdapter"]


class TextAdapter(Adapter):
    """An adapter of a model with a tokenizer. A family adds `prepare`, `run` and `finish`."""

    tokenizer: TextTokenizer
    """Set by the family."""
    prompts: Prompts | None = None
    """Set by a family whose texts may have prompts."""

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Name `input_type` if no prompt is of that role; see `Prompts.passed_over`.

        Raises:
            InvalidInput: The requested prompt or template does not exist.
        """
        return () if self.prompts is None else self.prompts.passed_over(task)

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts; with `special`, those too that the tokenizer adds.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return self.tokenizer.show(texts, special=special, most=most)

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the texts of token ids.

        Raises:
            InvalidInput: The tokenizer has no such token.
        """
        return self.tokenizer.write(ids, special=special)


class HostAdapter(TextAdapter):
    """A text adapter that computes nothing on a device: `finish` does all the work, on CPU threads."""

    def run(self, units: Sequence[Unit]) -> None:
        """No computation on the device's thread is needed."""

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait for nothing: the device takes no part in it."""
        return True
