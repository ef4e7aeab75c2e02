"""Labels in the form of a GLiNER checkpoint, checked: a prompt before the text, or rows for a separate encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from sie_text.tokenizer import Ids, require_unicode

from sie_core.contracts import InvalidInput
from sie_gliner.text.tokens import Tokens

SHOWN = 40
"""Characters of a label that a message quotes."""
NONE: Ids = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt made from one request's labels."""

    ids: Ids
    """The tokens before the text, without special tokens; none if labels have an encoder."""
    labels: Ids
    """The place among `ids` of the token whose state stands for each label."""
    relations: Ids
    """The same of relation labels."""
    rows: tuple[Ids, ...] = ()
    """The framed tokens of each label, if labels have an encoder."""


@dataclass(frozen=True, slots=True)
class Markers:
    """The special tokens of a checkpoint's prompt."""

    entity: str
    relation: str | None
    """None if the model finds no relations."""
    separator: str
    reads_entity: bool = True
    """Whether a label is represented by its marker's state, not by that of the token after it."""
    reads_relation: bool = True


class PromptWriter:
    """Writes the prompt of a checkpoint whose labels stand before the text."""

    def __init__(self, model: str, tokens: Tokens, markers: Markers, budget: int) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokens: The tokenizer of words.
            markers: The words around labels.
            budget: Tokens a prompt may have.
        """
        self.markers = markers
        # The cache is on a helper: on a bound method it would keep this object, and so the tokenizer, after unload.
        self._written = lru_cache(maxsize=256)(_Writing(model, tokens, markers, budget).write)

    def prompt(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> Prompt:
        """Write the labels of one request.

        Raises:
            InvalidInput: A label cannot be told to the model, or all are too long.
        """
        return self._written(labels, relations)


@dataclass(frozen=True, slots=True)
class _Writing:
    """Writes prompts, each anew."""

    _model: str
    _tokens: Tokens
    _markers: Markers
    _budget: int

    def write(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> Prompt:
        ids, places = self._marked(self._markers.entity, labels, "labels", 0)
        alone, related = len(ids), NONE
        if self._markers.relation is not None:
            more, related = self._marked(self._markers.relation, relations, "options.relation_labels", alone)
            ids = np.concatenate((ids, more))
        if len(ids) > self._budget:
            param = "options.relation_labels" if alone <= self._budget and relations else "labels"
            raise InvalidInput(
                f"{param}: the labels take {len(ids)} tokens, and {self._model} has room for {self._budget} beside the "
                "text; send fewer or shorter ones.",
                param=param,
            )
        if not self._markers.reads_entity:
            places = places + 1
        if not self._markers.reads_relation:
            related = related + 1
        return Prompt(ids, places, related)

    def _marked(self, marker: str, labels: Sequence[str], param: str, before: int) -> tuple[Ids, Ids]:
        """Write labels, each after a marker, and the separator; also return the place of each marker.

        Args:
            marker: The word before each label.
            labels: What to write.
            param: The field they come from.
            before: Number of tokens before.
        """
        marks = self._tokens.ids([marker])
        parts, places = [], []
        for label in labels:
            ids = checked(self._tokens, self._model, label, param)
            refuse_long(self._model, label, param, len(marks) + len(ids), self._budget)
            places.append(before)
            parts += [marks, ids]
            before += len(marks) + len(ids)
        parts.append(self._tokens.ids([self._markers.separator]))
        return np.concatenate(parts), np.array(places, dtype=np.int64)


class LabelReader:
    """Tokenises the labels of a checkpoint that has an encoder for them."""

    def __init__(self, model: str, tokens: Tokens, longest: int, budget: int) -> None:
        """Keep the parts.

        Args:
            model: The model's id, for messages.
            tokens: The tokenizer of labels.
            longest: Tokens one label may have, special ones included.
            budget: Tokens all labels of a request may have.
        """
        self.tokens = tokens
        self._model = model
        self._budget = budget
        self._row = lru_cache(maxsize=4096)(partial(_label_row, model, tokens, longest))

    def prompt(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> Prompt:
        """Tokenise the labels of one request; such checkpoints find no relations.

        Raises:
            InvalidInput: A label cannot be told to the model, or all are too long.
        """
        rows = tuple(self._row(label) for label in labels)
        total = sum(len(row) for row in rows)
        if total > self._budget:
            raise InvalidInput(
                f"labels: they have {total} tokens, and {self._model} takes {self._budget} in one request; send fewer "
                "or shorter ones.",
                param="labels",
            )
        return Prompt(NONE, NONE, NONE, rows)


def _label_row(model: str, tokens: Tokens, longest: int, label: str) -> Ids:
    ids = checked(tokens, model, label, "labels", alone=True)
    refuse_long(model, label, "labels", len(ids) + tokens.framing, longest)
    return tokens.frame(ids)


def checked(tokens: Tokens, model: str, label: str, param: str, *, alone: bool = False) -> Ids:
    """Tokenise a label.

    Raises:
        InvalidInput: It is not Unicode, has no token, or holds a marker of the model's own.
    """
    require_unicode(label, param)
    ids = tokens.label(label) if alone else tokens.ids([label])
    if len(ids) == 0:
        raise InvalidInput(
            f"{param}: {model} sees nothing in the label {label[:SHOWN]!a}; leave it out or reword it.", param=param
        )
    if tokens.holds_special(ids):
        raise InvalidInput(
            f"{param}: the label {label[:SHOWN]!r} holds a marker that {model} keeps for itself; reword it.",
            param=param,
        )
    return ids


def refuse_long(model: str, label: str, param: str, tokens: int, most: int) -> None:
    """Refuse a label that is too long even without others.

    Raises:
        InvalidInput: It is.
    """
    if tokens > most:
        raise InvalidInput(
            f"{param}: the label {label[:SHOWN]!r}… takes {tokens} tokens, and {model} has room for {most}; shorten "
            "it.",
            param=param,
        )
