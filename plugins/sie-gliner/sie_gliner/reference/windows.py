"""The reference of `sie verify`: gliner's own predictions on the text of each window, one at a time.

gliner reads no text beyond one window; windows and the merging of their answers are the family's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sie_pytorch.forward import EncoderPart, load_model, position_limit

from sie_core.contracts import (
    Compared,
    Entity,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelInfo,
    ModelLoadError,
    NoReferenceError,
    ReferenceModel,
    Relation,
    Task,
)
from sie_gliner.answers.merging import Found, in_order, merge
from sie_gliner.answers.relations import merge_relations
from sie_gliner.checkpoint.config import read_config
from sie_gliner.encoders import LABELS, TEXTS
from sie_gliner.options import PYTHON
from sie_gliner.reference.process import GlinerProcess
from sie_gliner.text.making import make_rows
from sie_gliner.text.rows import Row, RowMaker
from sie_gliner.text.tokenizers import load_tokens


class Windows(ReferenceModel):
    """A checkpoint that gliner has loaded."""

    def __init__(self, gliner: GlinerProcess, rows: RowMaker, gives: frozenset[Compared]) -> None:
        self._gliner = gliner
        self._rows = rows
        self.gives = gives

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Windows:
        """Load the checkpoint.

        Raises:
            NoReferenceError: Its kind is not served, or gliner is not installed.
        """
        try:
            rows = _rows(context)
        except ModelLoadError as error:
            raise NoReferenceError(f"cannot load it: {error}") from error
        if note := rows.tokens.tokenizer.note:
            raise NoReferenceError(f"would build another tokenizer than the one that serves, {note}")
        assert context.weights is not None
        relations: frozenset[Compared] = frozenset(
            {"relations"} if context.model.profile.runtime.get("relation_labels") else ()
        )
        return cls(GlinerProcess(context.weights, _python()), rows, relations | {"entities"})

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Predict each window of each text, and merge."""
        return [self._merged([row for row, _ in rows]) for rows in self._rows.rows(items, task)]

    def _merged(self, rows: Sequence[Row]) -> ItemOutput:
        found = self._predicted(rows)
        windows = [Found(entities, row.own, int(row.ends[-1])) for row, (entities, _) in zip(rows, found, strict=True)]
        entities = merge(windows, flat=rows[0].choice.flat) if len(rows) > 1 else in_order(found[0][0])
        relations = merge_relations([each for _, each in found], entities) if rows[0].choice.relation_labels else None
        return ItemOutput(entities=tuple(entities), relations=relations)

    def _predicted(self, rows: Sequence[Row]) -> list[tuple[list[Entity], list[Relation]]]:
        """Have gliner predict the windows of one text."""
        choice, firsts = rows[0].choice, [int(row.starts[0]) for row in rows]
        asked: dict[str, Any] = {
            "threshold": choice.threshold, "flat_ner": choice.flat, "multi_label": choice.multi_label,
        }  # fmt: skip
        if choice.relation_labels:
            asked |= {"relations": list(choice.relation_labels), "relation_threshold": choice.relation_threshold}
            asked["return_relations"] = True
        texts = [row.text[first : int(row.ends[-1])] for row, first in zip(rows, firsts, strict=True)]
        answers = self._gliner.infer(texts, rows[0].labels, asked)
        return [
            ([_entity(each, first) for each in entities], [_relation(each, first) for each in relations])
            for first, (entities, relations) in zip(firsts, answers, strict=True)
        ]


def _python() -> Path | None:
    """Name the Python that has gliner; None for this one."""
    named = PYTHON.value()
    return Path(named) if named else None


def _rows(context: LoadContext) -> RowMaker:
    """Make the converter of texts to the windows of the engine."""
    card = context.card
    if card is None:
        raise ModelLoadError("CONFIG", "it has no weights")
    tokens, config = load_tokens(read_config(card, context.tokenizers))
    texts = _positions(card, EncoderPart(config.encoder, f"{TEXTS}model."))
    labels = _positions(card, EncoderPart(config.label_encoder, f"{LABELS}model.")) if config.label_encoder else None
    return make_rows(context, config, tokens, texts, labels)


def _positions(card: ModelCard, part: EncoderPart) -> int | None:
    return position_limit(load_model(card.path, torch.float32, torch.device("cpu"), part, card.records))


def _entity(found: dict[str, Any], first: int) -> Entity:
    return Entity(
        found["text"], found["label"], float(found["score"]), start=found["start"] + first, end=found["end"] + first
    )


def _relation(found: dict[str, Any], first: int) -> Relation:
    head, tail = found["head"], found["tail"]
    head_span, tail_span = ((each["start"] + first, each["end"] + first) for each in (head, tail))
    score, texts = float(found["score"]), (head["text"], tail["text"])
    return Relation(*texts, found["relation"], score=score, head_span=head_span, tail_span=tail_span)
