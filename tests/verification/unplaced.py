"""Relations without the places of their texts: all that the published client tells of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sie_core.contracts import Compared, ItemOutput, Relation
from sie_core.verification.questions import Question
from sie_core.verification.referring import References


class UnplacedReferences:
    """References whose relations have no places."""

    def __init__(self, references: References) -> None:
        self._references = references

    def computes(self, kind: Compared) -> bool:
        return self._references.computes(kind)

    def answer(self, question: Question, kind: Compared) -> tuple[str, Sequence[ItemOutput]]:
        name, outputs = self._references.answer(question, kind)
        return name, unplaced(outputs)


def unplaced(outputs: Sequence[ItemOutput]) -> list[ItemOutput]:
    return [replace(each, relations=each.relations and tuple(_counted(each.relations))) for each in outputs]


def _counted(relations: Sequence[Relation]) -> Iterator[Relation]:
    """Tell equal ones apart by a number, in the order of their scores, where their places did."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for each in sorted(relations, key=lambda relation: relation.score):
        said = each.head, each.relation, each.tail
        yield replace(each, head_span=(seen[said], seen[said]), tail_span=None)
        seen[said] += 1
