"""The rule for cutting long texts: at either end of the text itself, never in the words around it.

A prompt, the words of a template and special tokens are kept whole; if they leave no token for the text, the request is
refused.
"""

from __future__ import annotations

import numpy as np

from sie_core.contracts import InvalidInput, Task
from sie_text.tokenizer import Ids, TextTokenizer

__all__ = ["cut", "cuts_start", "no_room", "too_long"]


def cuts_start(task: Task, tokenizer: TextTokenizer) -> bool:
    """Whether texts are cut at their start: by the request, otherwise by the weights' files."""
    return tokenizer.cuts_start if task.truncate is None else task.truncate == "start"


def cut(content: Ids, room: int, *, start: bool, before: int = 0, after: int = 0) -> Ids:
    """Keep `room` tokens of `content`: its first `before` and last `after`, and as many between as there is room for.

    The middle tokens are the last ones if the text is cut at its `start`, and else the first ones. `room` must be above
    `before + after`.
    """
    if len(content) <= room:
        return content
    if start:
        return np.concatenate((content[:before], content[before + len(content) - room :]))
    return np.concatenate((content[: room - after], content[len(content) - after :]))


def too_long(
    where: str, model: str, tokens: int, limit: int, part_of: str = "", *, more: bool = False, kept: bool = False
) -> InvalidInput:
    """Make the error for a text that may not be cut, or cannot be cut enough.

    Args:
        where: Name of the field.
        model: The model's name.
        tokens: Number of tokens; with `more`, a lower bound: not all were counted.
        limit: Bound on the tokens.
        part_of: The whole that it is counted with, such as `the pair`.
        more: See `tokens`.
        kept: Whether it is never cut, so that allowing truncation does not help.
    """
    counted = f"{where}: {part_of} it is part of has" if part_of else f"{where} has"
    counted = f"{counted} more than {tokens}" if more else f"{counted} {tokens}"
    remedy = "it is never cut: shorten it" if kept else "shorten or split it, or allow truncation"
    return InvalidInput(
        f"{counted} tokens, and {model} takes {limit}: {remedy}.",
        param=where,
        code="INPUT_TOO_LONG",
    )


def no_room(where: str, limit: int, taken: int) -> InvalidInput:
    """Make the error for a text for which the words around it leave no token."""
    return InvalidInput(
        f"{where}: of the {limit} tokens it may have, the words and special tokens around it take {taken}, which "
        "leaves none for the text: shorten the prompt, or allow more tokens.",
        param="options.max_seq_length",
    )
