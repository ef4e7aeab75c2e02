"""The embedded default with its real weights, against sentence-transformers on the same folder."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sie_core.contracts import Adapter
from tests.pytorch.bare import minilm
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import Answer, ask, reference, serve

BOUND = 1e-5

pytestmark = pytest.mark.timeout(400)  # real weights, on a machine that may be busy


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return ["", " ", "a", *make_texts(497, 50)]


@pytest.fixture(scope="module")
def expected(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    return reference(folder).encode(texts)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Adapter:
    return serve(folder)


@pytest.fixture(scope="module")
def answer(encoder: Adapter, texts: list[str]) -> Answer:
    return ask(encoder, texts)


def test_vectors_equal_those_of_sentence_transformers(answer: Answer, expected: NDArray[np.float32]) -> None:
    assert answer.vectors.shape == (500, 384)
    assert np.abs(answer.vectors - expected).max() <= BOUND
    assert all(output.normalized for output in answer.outputs)


def test_the_texts_span_1_to_400_tokens_and_some_are_cut(answer: Answer) -> None:
    lengths = [unit.truncated.tokens if unit.truncated else unit.tokens for unit in answer.units]
    assert min(lengths) <= 3
    assert max(lengths) >= 400
    assert sum(unit.truncated is not None for unit in answer.units) >= 5
    assert all(unit.truncated.kept == unit.tokens == 256 for unit in answer.units if unit.truncated)


def test_token_ids_equal_the_reference_tokenizer_s(folder: Path, texts: list[str], answer: Answer) -> None:
    tokenizer = reference(folder).tokenizer
    for text, unit in zip(texts, answer.units, strict=True):
        assert unit.payload.ids.tolist() == tokenizer(text, truncation=True)["input_ids"]


def test_a_text_alone_equals_itself_in_any_batch(encoder: Adapter, texts: list[str], answer: Answer) -> None:
    alone = np.concatenate([ask(encoder, [text]).vectors for text in texts[:150]])
    assert np.abs(alone - answer.vectors[:150]).max() <= BOUND
    shuffled = [answer.units[index] for index in np.random.default_rng(3).permutation(len(texts))[:92]]
    for start in range(0, len(shuffled), 23):  # not sorted, other company, other sizes
        batch = shuffled[start : start + 23]
        outputs = encoder.finish(batch, encoder.run(batch))
        for unit, output in zip(batch, outputs, strict=True):
            assert output.dense is not None
            assert np.abs(output.dense - answer.vectors[unit.item]).max() <= BOUND


def test_the_default_precision_keeps_every_direction(
    folder: Path, texts: list[str], answer: Answer, expected: NDArray[np.float32]
) -> None:
    encoder = serve(folder, precision="float16")
    assert encoder.facts.precision in {"float32", "bfloat16"}
    assert "bfloat16" in encoder.facts.notes["precision"], "a precision nobody asked for is silent"
    vectors = answer.vectors if encoder.facts.precision == "float32" else ask(encoder, texts).vectors
    cosines = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= 0.9995


def test_the_facts_are_read_from_the_weights(encoder: Adapter) -> None:
    facts = encoder.facts
    assert facts.outputs == ("dense",)
    assert facts.dims == {"dense": 384}
    assert facts.matryoshka_dims == ()
    assert facts.max_sequence_length == 256
    assert 88_000_000 < facts.memory_bytes < 92_000_000
    assert facts.notes["runner"] != "padded"
