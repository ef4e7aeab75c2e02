"""Entities of windows become one list by the rule: each once, none lost at a border, none in another's way."""

from dataclasses import replace

import pytest
from sie_gliner.answers.merging import Found, merge

from sie_core.contracts import Entity

LEFT, RIGHT = (0, 50), (50, 100)
LEFT_END = 60


def entity(start, end, score=0.9, label="a"):
    return Entity("x" * (end - start), label, score, start=start, end=end)


def merged(left, right, *, flat=True):
    windows = [Found(left, LEFT, LEFT_END), Found(right, RIGHT, 100)]
    return [(each.start, each.end, each.label) for each in merge(windows, flat=flat)]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        pytest.param([(41, 45)], [(41, 45)], [(41, 45)], id="seen by both, owned by the left"),
        pytest.param([(52, 55)], [(52, 55)], [(52, 55)], id="seen by both, owned by the right"),
        pytest.param([(52, 55)], [], [], id="the owner does not find it"),
        pytest.param([(48, 53)], [(48, 53)], [(48, 53)], id="crosses the border, seen by both"),
        pytest.param([], [(48, 53)], [(48, 53)], id="crosses the border, found by the other window alone"),
        pytest.param([(50, 53)], [(48, 53)], [(48, 53)], id="each window gives it to the other"),
        pytest.param([(48, 60)], [(48, 70)], [(48, 70)], id="cut by the window's end, whole in the next"),
        pytest.param([(48, 60)], [], [(48, 60)], id="ends with the window by chance"),
        pytest.param([(48, 60)], [(55, 57)], [(55, 57)], id="what may be half of one yields"),
    ],
)
def test_an_entity_at_a_border_is_kept_once(left, right, kept, flat):
    found = merged([entity(*each) for each in left], [entity(*each) for each in right], flat=flat)
    assert found == [(*each, "a") for each in kept]


@pytest.mark.parametrize(("left_score", "kept"), [(0.9, (45, 55)), (0.6, (52, 58))])
def test_of_two_that_overlap_over_a_border_the_surer_stays(left_score, kept):
    found = merged([entity(45, 55, left_score)], [entity(52, 58, 0.8)])
    assert found == [(*kept, "a")]


def test_nested_entities_may_lie_over_a_border():
    assert merged([entity(45, 58)], [entity(52, 55)], flat=False) == [(45, 58, "a"), (52, 55, "a")]
    assert merged([entity(45, 54, 0.5)], [entity(52, 58)], flat=False) == [(52, 58, "a")]


def test_labels_of_one_span_stay_together():
    both = [entity(48, 53, label=label) for label in "ab"]
    assert merged(both, both) == [(48, 53, "a"), (48, 53, "b")]
    assert merged([], both) == [(48, 53, "a"), (48, 53, "b")]


def test_entities_come_in_the_order_of_the_text_and_keep_their_scores():
    windows = [Found([entity(30, 35, 0.4), entity(2, 5, 0.7)], LEFT, LEFT_END), Found([entity(60, 62)], RIGHT, 100)]
    assert merge(windows, flat=True) == [entity(2, 5, 0.7), entity(30, 35, 0.4), entity(60, 62)]
    assert merge(windows[:1], flat=True) == [replace(entity(2, 5), score=0.7), replace(entity(30, 35), score=0.4)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("flat", [True, False])
def test_labels_of_a_place_are_not_compared_one_by_one(flat):
    labels = [str(number) for number in range(300)]
    places = [(start, end) for start in range(40, 60) for end in range(start + 1, min(start + 13, LEFT_END) + 1)]
    every = [entity(*place, 0.5, label) for place in places for label in labels]
    found = merged(every, every, flat=flat)
    assert len(found) == len(set(found)) > 10_000
