"""What was extracted leaves in the wire's shape, every kind of output there, and nothing that is not finite."""

import numpy as np
import pytest
from sie_sdk.wire import unpack

from sie_core.contracts import (
    Classification,
    DetectedObject,
    Entity,
    InferenceError,
    ItemOutput,
    Relation,
    Truncation,
)
from sie_core.postprocess import encode_extraction, encode_score, require_finite

EMPTY = {"entities": [], "relations": [], "classifications": [], "objects": [], "data": {}}


def test_every_kind_of_output_is_there_empty_or_not():
    assert unpack(encode_extraction(ItemOutput(entities=()), "a")) == {"id": "a", **EMPTY}


def test_each_kind_has_the_keys_of_the_wire():
    output = ItemOutput(
        entities=(Entity("Ada", "person", np.float32(0.5), start=3, end=6), Entity("x", "word", 1, bbox=(0, 1, 2, 3))),
        relations=(
            Relation("Ada", "Bo", "knows", score=0.5),
            Relation("Ada", "Bo", "knows", score=0.5, head_span=(3, 6), tail_span=(9, 11)),
        ),
        classifications=(Classification("good", 0.9),),
        objects=(DetectedObject("cat", 0.8, (1.0, 2.0, 3.0, 4.0)),),
        data={"names": ["Ada"], "age": None},
    )
    related = {"head": "Ada", "tail": "Bo", "relation": "knows", "score": 0.5}
    assert unpack(encode_extraction(output, "a", Truncation(9, 5))) == {
        "id": "a",
        "entities": [
            {"text": "Ada", "label": "person", "score": 0.5, "start": 3, "end": 6, "bbox": None},
            {"text": "x", "label": "word", "score": 1.0, "start": None, "end": None, "bbox": [0.0, 1.0, 2.0, 3.0]},
        ],
        "relations": [related, related | {"head_span": [3, 6], "tail_span": [9, 11]}],
        "classifications": [{"label": "good", "score": 0.9}],
        "objects": [{"label": "cat", "score": 0.8, "bbox": [1.0, 2.0, 3.0, 4.0]}],
        "data": {"names": ["Ada"], "age": None},
        "truncated": {"tokens": 9, "kept": 5},
    }


def test_a_score_is_a_plain_number_with_its_document():
    assert unpack(encode_score(np.float32(0.5), "a")) == {"item_id": "a", "score": 0.5}
    assert unpack(encode_score(-2, None, Truncation(9, 5)))["truncated"] == {"tokens": 9, "kept": 5}


NAN = float("nan")


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (ItemOutput(score=NAN), "score"),
        (ItemOutput(score=float("-inf")), "score"),
        (
            ItemOutput(entities=(Entity("a", "b", 1.0, start=0, end=1), Entity("a", "b", NAN, start=0, end=1))),
            "entities",
        ),
        (ItemOutput(relations=(Relation("a", "b", "c", score=NAN),)), "relations"),
        (ItemOutput(classifications=(Classification("a", NAN),)), "classifications"),
        (ItemOutput(objects=(DetectedObject("a", NAN, (0, 0, 1, 1)),)), "objects"),
        (ItemOutput(objects=(DetectedObject("a", 1.0, (0, 0, NAN, 1)),)), "objects"),
        (ItemOutput(data={"a": [{"b": (1.0, np.float32(NAN))}]}), "data"),
    ],
)
def test_what_is_not_finite_never_leaves(output, named):
    with pytest.raises(InferenceError, match=f"infinity in its {named} output") as caught:
        require_finite(output, "items[2]")
    assert (caught.value.code, caught.value.param) == ("NON_FINITE_OUTPUT", "items[2]")


def test_what_is_finite_leaves():
    require_finite(ItemOutput(score=-3.5, data={"a": [1, "nan", None, True, 2.5]}, entities=()), "items[0]")
