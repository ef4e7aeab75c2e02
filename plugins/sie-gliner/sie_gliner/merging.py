"""Makes one list of the entities of a text's windows. It knows characters, no words and no model.

The rule: an entity belongs to the window that owns its first character. One that crosses the border to the next window
may be seen otherwise there; then

1. of two owned entities that get into each other's way over a border, the one of higher score stays;
2. an entity that ends with its window, where the next one goes on, may be half of one, and stays only where nothing
   else lies;
3. an entity that crosses the border and was found by the window after it alone stays where nothing else lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sie_core.contracts import Entity


@dataclass(frozen=True, slots=True)
class Found:
    """What one window found."""

    entities: Sequence[Entity]
    own: tuple[int, int]
    """The characters it owns, end exclusive."""
    end: int
    """Where its last word ends."""


@dataclass(slots=True)
class _Kept:
    """Entities of one window that stay."""

    entities: list[Entity] = field(default_factory=list)

    def around(self, entity: Entity) -> list[Entity]:
        return [other for other in self.entities if _share(entity, other)]


def merge(windows: Sequence[Found], *, flat: bool) -> list[Entity]:
    """Merge the entities of one text, windows in the text's order; entities come by their place in the text."""
    kept = [_owned(window, last=place == len(windows) - 1) for place, window in enumerate(windows)]
    for place in range(len(windows) - 1):
        _settle(kept[place], kept[place + 1], windows[place].own[1], flat)
        _fill(kept[place], kept[place + 1], windows[place], windows[place + 1])
    return in_order(entity for each in kept for entity in each.entities)


def in_order(entities: Iterable[Entity]) -> list[Entity]:
    """Sort entities by their place in the text; of the same place, the surest first."""
    return sorted(entities, key=lambda entity: (*_span(entity), -entity.score, entity.label))


def _owned(window: Found, *, last: bool) -> _Kept:
    first, end = window.own
    return _Kept(
        [
            entity
            for entity in window.entities
            if first <= _span(entity)[0] < end and (last or not _is_cut(entity, window))
        ]
    )


def _is_cut(entity: Entity, window: Found) -> bool:
    return _span(entity)[1] >= window.end


def _settle(before: _Kept, after: _Kept, border: int, flat: bool) -> None:
    """Drop the less sure of two entities that get into each other's way over a border."""
    for entity in sorted((each for each in before.entities if _span(each)[1] > border), key=lambda each: -each.score):
        rivals = [other for other in after.around(entity) if flat or not _nested(entity, other)]
        if all(entity.score >= other.score for other in rivals):
            after.entities = [other for other in after.entities if other not in rivals]
        else:
            before.entities.remove(entity)


def _fill(before: _Kept, after: _Kept, window: Found, next_window: Found) -> None:
    """Add what crosses the border and was found by the other window alone, then what the window's end may have cut."""
    border = window.own[1]
    crossing = [each for each in next_window.entities if _span(each)[0] < border < _span(each)[1]]
    cut = [each for each in window.entities if window.own[0] <= _span(each)[0] < border and _is_cut(each, window)]
    for spare in (crossing, cut):
        free = [each for each in spare if not before.around(each) and not after.around(each)]
        before.entities += free


def _span(entity: Entity) -> tuple[int, int]:
    assert entity.start is not None
    assert entity.end is not None
    return entity.start, entity.end


def _share(one: Entity, other: Entity) -> bool:
    (first, last), (other_first, other_last) = _span(one), _span(other)
    return first < other_last and other_first < last


def _nested(one: Entity, other: Entity) -> bool:
    outer, inner = sorted((_span(one), _span(other)), key=lambda span: (span[0], -span[1]))
    return inner[1] <= outer[1]
