"""The reference of `sie verify`: gliner's own predictions on the text of each window, one at a time.

gliner reads no text beyond one window: where windows lie, and how their answers become one, is the family's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sie_core.contracts import (
    Compared,
    Entity,
    Item,
    ItemOutput,
    LoadContext,
    ModelInfo,
    ModelLoadError,
    NoReferenceError,
    ReferenceModel,
    Relation,
    Task,
)
from sie_gliner.building import row_maker, take_back
from sie_gliner.checkpoint import load_checkpoint
from sie_gliner.merging import Found, in_order, merge
from sie_gliner.relations import merge_relations
from sie_gliner.rows import Row, RowMaker


class Windows(ReferenceModel):
    """A checkpoint that gliner has loaded."""

    def __init__(self, library: Any, rows: RowMaker, gives: frozenset[Compared]) -> None:
        self._library = library
        self._rows = rows
        self.gives = gives

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Windows:
        """Load the checkpoint.

        Raises:
            NoReferenceError: It is of no kind served.
        """
        torch.set_num_threads(context.threads)
        try:
            checkpoint = load_checkpoint(context)
        except ModelLoadError as error:
            raise NoReferenceError(f"cannot load it: {error}") from error
        relations: frozenset[Compared] = frozenset(
            {"relations"} if context.model.profile.runtime.get("relation_labels") else ()
        )
        return cls(checkpoint.gliner, row_maker(context, checkpoint), relations | {"entities"})

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Predict each window of each text, and merge."""
        take_back(self._library)
        windows = list(self._rows.rows(items, task))
        return [self._merged([row for row, _ in rows]) for rows in windows]

    def _merged(self, rows: Sequence[Row]) -> ItemOutput:
        found = [self._predicted(row) for row in rows]
        windows = [Found(entities, row.own, int(row.ends[-1])) for row, (entities, _) in zip(rows, found, strict=True)]
        entities = merge(windows, flat=rows[0].choice.flat) if len(rows) > 1 else in_order(found[0][0])
        relations = merge_relations([each for _, each in found], entities) if rows[0].choice.relation_labels else None
        return ItemOutput(entities=tuple(entities), relations=relations)

    def _predicted(self, row: Row) -> tuple[list[Entity], list[Relation]]:
        choice, first = row.choice, int(row.starts[0])
        asked: dict[str, Any] = {
            "threshold": choice.threshold, "flat_ner": choice.flat, "multi_label": choice.multi_label,
        }  # fmt: skip
        if choice.relation_labels:
            asked |= {"relations": list(choice.relation_labels), "relation_threshold": choice.relation_threshold}
            asked["return_relations"] = True
        said = self._library.inference([row.text[first : int(row.ends[-1])]], list(row.labels), **asked)
        entities, relations = said if isinstance(said, tuple) else (said, [[]])
        return [_entity(each, first) for each in entities[0]], [_relation(each, first) for each in relations[0]]


def _entity(found: dict[str, Any], first: int) -> Entity:
    return Entity(found["text"], found["label"], float(found["score"]), found["start"] + first, found["end"] + first)


def _relation(found: dict[str, Any], first: int) -> Relation:
    head, tail = found["head"], found["tail"]
    spans = [(each["start"] + first, each["end"] + first) for each in (head, tail)]
    return Relation(head["text"], tail["text"], found["relation"], float(found["score"]), *spans)
