"""Makes one list of the entities of a text's windows, by their places in characters.

The rule: an entity belongs to the window that owns its first character. A crossing entity, which reaches into the next
window, may be found differently there; then

1. of two owned entities that conflict across the border, the one with the higher score stays;
2. an entity that ends where its window ends, with more text behind it, may be cut off, and stays only if nothing
   overlaps it;
3. a crossing entity that only the following window found stays if nothing overlaps it.

Only spans are compared, by the best score of their labels: a span is compared once, however many labels it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sie_core.contracts import Entity

Place = tuple[int, int]
"""First character and end of an entity."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one window."""

    entities: Sequence[Entity]
    own: tuple[int, int]
    """The characters it owns, end exclusive."""
    end: int
    """End of its last word."""


def merge(windows: Sequence[Found], *, flat: bool) -> list[Entity]:
    """Merge the entities of one text, windows in the text's order; entities come by their place in the text."""
    kept = [_owned(window, last=place == len(windows) - 1) for place, window in enumerate(windows)]
    for place in range(len(windows) - 1):
        _settle(kept[place], kept[place + 1], windows[place].own[1], flat)
        _fill(kept[place], kept[place + 1], windows[place], windows[place + 1])
    return in_order(entity for entities in kept for entity in entities)


def in_order(entities: Iterable[Entity]) -> list[Entity]:
    """Sort entities by their place in the text; of the same place, the surest first."""
    return sorted(entities, key=lambda entity: (*_span(entity), -entity.score, entity.label))


def _owned(window: Found, *, last: bool) -> list[Entity]:
    first, end = window.own
    return [
        entity
        for entity in window.entities
        if first <= _span(entity)[0] < end and (last or not _is_cut(entity, window))
    ]


def _is_cut(entity: Entity, window: Found) -> bool:
    return _span(entity)[1] >= window.end


def _settle(before: list[Entity], after: list[Entity], border: int, flat: bool) -> None:
    """Drop the less sure of two entities that get into each other's way over a border."""
    crossing = {place: score for place, score in _best_scores(before).items() if place[1] > border}
    rivals, lost = _best_scores(after) if crossing else {}, set()
    for place, score in sorted(crossing.items(), key=lambda each: -each[1]):
        near = [other for other in rivals if _share(place, other) and (flat or not _nested(place, other))]
        if all(score >= rivals[other] for other in near):
            lost.update(near)
            rivals = {other: best for other, best in rivals.items() if other not in lost}
        else:
            lost.add(place)
    _drop(before, lost)
    _drop(after, lost)


def _best_scores(entities: Iterable[Entity]) -> dict[Place, float]:
    """Find the highest score at each place."""
    best: dict[Place, float] = {}
    for entity in entities:
        place = _span(entity)
        best[place] = max(best.get(place, entity.score), entity.score)
    return best


def _drop(entities: list[Entity], places: set[Place]) -> None:
    if places:
        entities[:] = [entity for entity in entities if _span(entity) not in places]


def _fill(before: list[Entity], after: list[Entity], window: Found, next_window: Found) -> None:
    """Add the crossing entities that only the other window found, then those that the window's end may have cut."""
    border = window.own[1]
    crossing = [each for each in next_window.entities if _span(each)[0] < border < _span(each)[1]]
    cut = [each for each in window.entities if window.own[0] <= _span(each)[0] < border and _is_cut(each, window)]
    for spare in (crossing, cut):
        taken = {_span(each) for each in (*before, *after)} if spare else set()
        places = {_span(each) for each in spare}
        free = {place for place in places if not any(_share(place, other) for other in taken)}
        before += [each for each in spare if _span(each) in free]


def _span(entity: Entity) -> Place:
    assert entity.start is not None
    assert entity.end is not None
    return entity.start, entity.end


def _share(one: Place, other: Place) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _nested(one: Place, other: Place) -> bool:
    outer, inner = sorted((one, other), key=lambda place: (place[0], -place[1]))
    return inner[1] <= outer[1]
