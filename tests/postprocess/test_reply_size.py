"""The size of a reply is told before it is computed, as near to the truth as a refusal needs."""

import numpy as np
import orjson
import pytest

from sie_core.api.body.embedding_types import JSON_FLOAT_BYTES, JSON_INTEGER_BYTES
from sie_core.contracts import InferenceRequest, Item, ItemOutput, ModelFacts, ReplyForm, Task
from sie_core.postprocess import OUTPUT_DTYPES, encode_item
from sie_core.postprocess.plan import OutputPlan
from sie_core.postprocess.reply_size import ITEM_BYTES, ReplySize, row_bytes

DIMS = 1024
JSON = ReplyForm(None, JSON_FLOAT_BYTES, JSON_INTEGER_BYTES)
RANDOM = np.random.default_rng(3)


def size(*items: Item, most: int, outputs=("multivector",), longest: int | None = None) -> ReplySize:
    facts = ModelFacts(outputs=outputs, dims={"multivector": 128, "dense": 8}, max_sequence_length=longest)
    asked = InferenceRequest("m", "encode", items, request_id="r", reply=ReplyForm(most))
    plan = OutputPlan(next(each for each in OUTPUT_DTYPES if each.name == "float32"), outputs)
    return ReplySize(asked, Task("encode", outputs), plan, facts)


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES, ids=lambda dtype: dtype.name)
def test_a_vector_is_foretold_as_it_is_written(dtype):
    vectors = RANDOM.standard_normal((50, DIMS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cast = dtype.cast(vectors)
    assert row_bytes(dtype, DIMS, ReplyForm()) == cast[0].nbytes
    written = len(orjson.dumps(cast, option=orjson.OPT_SERIALIZE_NUMPY)) / len(cast)
    assert written == pytest.approx(row_bytes(dtype, DIMS, JSON), rel=0.1)
    packed = encode_item(ItemOutput(dense=vectors[0]), dtype, 0)
    assert 0 <= len(packed) - cast[0].nbytes <= ITEM_BYTES


def test_short_texts_need_no_look_at_their_tokens():
    texts = [Item(text="a text")] * 100
    assert not size(*texts, most=100 * (ITEM_BYTES + 512 * 70)).check()
    assert size(*texts, most=100 * (ITEM_BYTES + 512 * 69)).check()
    assert not size(*texts, most=100 * (ITEM_BYTES + 512 * 69), longest=30).check()
    assert not size(*texts, most=2**20, outputs=("dense",)).check()
