"""Relations are those gliner finds, with the places of both ends; over windows each comes once."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sie_gliner.answers.relations import merge_relations

from sie_core.contracts import Entity, InvalidInput, Item, Relation
from tests.gliner.library import library
from tests.gliner.loading import asking, extract, load, spans
from tests.gliner.test_reference import CLOSE, write

LABELS = ("person", "city", "old place")
KINDS = ("relex", "relex-pairs", "relex-token")
ASKED = {"relation_labels": ["name of", "river"], "threshold": 0.5, "relation_threshold": 0.4}


@pytest.fixture(scope="session")
def pair(checkpoint: Callable[..., Path]) -> Callable[[str], tuple[Any, Path]]:
    return cache(lambda kind: (load(checkpoint(kind)), checkpoint(kind)))


def named(relations: Sequence[Relation]) -> list[tuple[Any, ...]]:
    return sorted((each.head_span, each.tail_span, each.relation, each.head, each.tail) for each in relations)


def theirs(relations: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    ends = [(each["head"], each["tail"], each["relation"]) for each in relations]
    return sorted(
        ((head["start"], head["end"]), (tail["start"], tail["end"]), relation, head["text"], tail["text"])
        for head, tail, relation in ends
    )


@pytest.mark.parametrize("kind", KINDS)
def test_relations_are_those_of_gliner(pair: Any, kind: str) -> None:
    adapter, folder = pair(kind)
    count = 0
    for seed in range(8):
        text = write(seed, 60)
        (output,) = extract(adapter, [text], asking(LABELS, **ASKED))
        entities, relations = library().relations(
            folder,
            text,
            LABELS,
            relations=ASKED["relation_labels"],
            threshold=0.5,
            relation_threshold=0.4,
            return_relations=True,
        )
        assert spans(output.entities) == spans(entities)
        assert named(output.relations) == theirs(relations)
        scores = sorted(each.score for each in output.relations)
        expected = sorted(each["score"] for each in relations)
        assert all(abs(one - other) <= CLOSE for one, other in zip(scores, expected, strict=True))
        count += len(relations)
    assert count > 10


def test_entities_do_not_depend_on_whether_relations_are_asked_for(pair: Any) -> None:
    adapter, _ = pair("relex-pairs")
    (alone,) = extract(adapter, [write(2, 60)], asking(LABELS))
    assert alone.relations is None
    assert next(adapter.prepare([Item(text="a")], asking(LABELS, threshold=0.1))).key == "entities"


def test_each_relation_of_a_long_text_comes_once_between_entities_that_stayed(pair: Any) -> None:
    adapter, _ = pair("relex-pairs")
    text = write(5, 600)
    (output,) = extract(adapter, [text], asking(LABELS, **ASKED))
    places = [(each.head_span, each.tail_span, each.relation) for each in output.relations]
    assert len(places) == len(set(places)) > 5
    entities = {(each.start, each.end) for each in output.entities}
    for relation in output.relations:
        assert {relation.head_span, relation.tail_span} <= entities
        assert text[slice(*relation.head_span)] == relation.head


def test_the_surer_of_two_windows_is_believed() -> None:
    ends = (Entity("a", "x", 1.0, start=0, end=1), Entity("b", "x", 1.0, start=2, end=3))
    seen = [Relation("a", "b", "r", score=score, head_span=(0, 1), tail_span=(2, 3)) for score in (0.5, 0.8)]
    lost = Relation("a", "c", "r", score=0.9, head_span=(0, 1), tail_span=(4, 5))
    assert merge_relations([[seen[0], lost], [seen[1]]], ends) == (seen[1],)
    assert merge_relations([None, None], ends) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_entities_has_no_relations(pair: Any, kind: str) -> None:
    adapter, _ = pair(kind)
    texts = ["old", write(1, 60)]
    outputs = extract(adapter, texts, asking(LABELS, **ASKED | {"threshold": 1.0}))
    assert [(output.entities, output.relations) for output in outputs] == [((), ()), ((), ())]


@pytest.mark.parametrize("labels", [["a", " "], [7]])
def test_a_relation_label_that_is_none_is_refused(pair: Any, labels: list[Any]) -> None:
    with pytest.raises(InvalidInput, match="must be a text") as refused:
        list(pair("relex")[0].prepare([Item(text="a")], asking(LABELS, relation_labels=labels)))
    assert refused.value.param == "options.relation_labels"


def test_a_threshold_that_would_pair_everything_is_refused(pair: Any) -> None:
    with pytest.raises(InvalidInput, match="at least 0") as refused:
        list(pair("relex")[0].prepare([Item(text="a")], asking(LABELS, relation_labels=["of"], threshold=0.05)))
    assert refused.value.param == "options.threshold"


def test_a_checkpoint_without_relations_refuses_to_look_for_some(checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInput, match="trained on no relations") as refused:
        list(load(checkpoint("span")).prepare([Item(text="a")], asking(LABELS, relation_labels=["of"])))
    assert refused.value.param == "options.relation_labels"
