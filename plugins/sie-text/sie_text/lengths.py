"""The limit on the length of texts, combined from the weights' files, the model's config, its positions and the
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sie_core.contracts import InvalidInput, ModelCard, ModelConfig, ModelLoadError, Task
from sie_text.recipe import ExpansionSettings, TransformerSettings
from sie_text.tokenizer import TextTokenizer

__all__ = ["Lengths", "assumed_length", "sequence_lengths"]

_STATED_LENGTHS = ("max_position_embeddings", "n_positions")
"""Keys of `config.json` for the length that a model was trained on, although its positions may go beyond."""
_ASSUMED_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bound on the tokens of a text, including special ones; None for no limit."""

    default: int | None
    query: int | None
    document: int | None
    _: KW_ONLY
    most: int | None
    """Upper bound for requests: the limit of the model's positions, or else the longest of the other lengths."""
    least: int
    """Tokens that a text needs at least: its special tokens and one of its own."""

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


def sequence_lengths(
    config: ModelConfig,
    card: ModelCard,
    settings: TransformerSettings,
    tokenizer: TextTokenizer,
    most: int | None,
    expansion: ExpansionSettings | None = None,
) -> tuple[Lengths, str | None]:
    """Combine the limits on the length of texts; report a limit that is assumed, or less than requested.

    As in sentence-transformers, the files' own length counts, within the limit of the model's positions. A length in
    the model's config replaces the files' own. Unlike there, a length is assumed if none is stated: the time of a text
    grows with the square of its length. If positions are unlimited, no request goes beyond these lengths.

    Args:
        config: The model's config.
        card: The facts of the weights' files.
        settings: The files' settings of the transformer.
        tokenizer: The model's tokenizer.
        most: Tokens that the positions of the model allow; None if unlimited.
        expansion: Expansion of queries, which then sets their length.

    Raises:
        ModelLoadError: `CONFIG`: the length leaves no room for a text.
    """
    note = None
    asked = config.max_sequence_length or tokenizer.max_length
    if asked is None and most is None:
        asked, note = assumed_length(card)
    query = config.max_sequence_length or settings.query_length or asked
    if expansion is not None:
        query = expansion.length if expansion.fixed else max(query or 0, expansion.length)
    document = config.max_sequence_length or settings.document_length or asked
    least = tokenizer.framing + 1
    default = _within(most, asked)
    if default is not None and default < least:
        raise ModelLoadError(
            "CONFIG", f"The model's length is {default} tokens, and its special tokens alone are {tokenizer.framing}."
        )
    if asked is not None and default != asked and (config.max_sequence_length or settings.max_seq_length):
        note = f"{default} tokens in place of the {asked} asked for: the model has no positions beyond"
    if most is None:
        most = max((each for each in (default, query, document) if each is not None), default=None)
    return Lengths(default, _within(most, query), _within(most, document), most=most, least=least), note


def assumed_length(card: ModelCard) -> tuple[int, str]:
    """Choose the length of a model whose tokenizer and positions set no limit, and the note on it."""
    remedy = "`max_sequence_length` in the model's config sets another length"
    for name in _STATED_LENGTHS:
        stated = card.config.get(name)
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated, f"{stated} tokens, the `{name}` of config.json; the tokenizer's files state none. {remedy}"
    return _ASSUMED_LENGTH, f"{_ASSUMED_LENGTH} tokens were assumed: the weights' files state no length. {remedy}"


def _within(most: int | None, asked: int | None) -> int | None:
    return min((each for each in (most, asked) if each is not None), default=None)
