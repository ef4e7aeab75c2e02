"""Makes one list of the relations of a text's windows.

A relation is found if one window sees both its ends; if two do, the higher score is kept. It stays if both its ends
stayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sie_core.contracts import Entity, Relation


def merge_relations(
    windows: Sequence[Sequence[Relation] | None], entities: Iterable[Entity]
) -> tuple[Relation, ...] | None:
    """Merge the relations of one text's windows; None if no relations were requested."""
    if all(relations is None for relations in windows):
        return None
    kept = {(entity.start, entity.end) for entity in entities}
    best: dict[object, Relation] = {}
    for relation in (each for relations in windows for each in relations or ()):
        place = (relation.head_span, relation.tail_span, relation.relation)
        known = best.get(place)
        if {relation.head_span, relation.tail_span} <= kept and (known is None or known.score < relation.score):
            best[place] = relation
    return tuple(in_order(best.values()))


def in_order(relations: Iterable[Relation]) -> list[Relation]:
    """Sort relations by the places of their ends."""
    return sorted(relations, key=lambda each: (each.head_span or (), each.tail_span or (), -each.score, each.relation))
