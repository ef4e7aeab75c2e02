"""Vectors, token ids, usage and truncation are those of sie-pytorch, whose weights and files they share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_sglang.adapter import SglangEncoder
from sie_sglang.loading import load

from sie_core.contracts import InferenceError, InvalidInput, Item
from tests.pytorch.encoders import Answer, ask, context, serve, task
from tests.sglang.conftest import NAMES, write_lora, write_python

SCRIPTS = "aäßéñçøžабвгд漢字かな한국어עברית🙂👩‍👩‍👧‍👦é \t\r\n\0.,;:!?-—\"'"

TEXTS = ["one", "two and three", "the quick brown fox " * 8]


@contextmanager
def served(folder: Path, **arguments: Any) -> Iterator[SglangEncoder]:
    adapter = load(context(folder, **arguments))
    try:
        yield adapter
    finally:
        adapter.unload()


def texts(number: int) -> list[str]:
    chance = random.Random(number)
    drawn = ["".join(chance.choice(SCRIPTS) for _ in range(chance.randint(1, 60))) for _ in range(number)]
    return ["", "  ", "\0", "one", "the quick brown fox " * 40, *drawn]


def told(answer: Answer) -> list[tuple[list[int], int, object]]:
    return [(list(unit.payload.ids), unit.tokens, unit.truncated) for unit in answer.units]


@dataclass(frozen=True)
class Pair:
    """One model by both families."""

    folder: Path
    ours: SglangEncoder
    theirs: Any


@pytest.fixture(scope="module", params=NAMES)
def pair(embedders: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Pair]:
    folder, scratch = embedders / "test" / request.param, tmp_path_factory.mktemp("engine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIE_SGLANG_PYTHON", str(write_python(scratch, scratch, plain=False)))
        adapter = load(context(folder, loadtime={"max_lora_rank": 4}))
    yield Pair(folder, adapter, serve(folder))
    adapter.unload()


def test_the_numbers_and_the_tokens_are_those_of_the_other_family(pair: Pair) -> None:
    for role in (None, "query", "document"):
        one, other = (ask(adapter, texts(40), input_type=role) for adapter in (pair.ours, pair.theirs))
        assert told(one) == told(other)
        assert np.abs(one.vectors - other.vectors).max() <= 1e-5
    assert one.vectors.std() > 0.05, "vectors differ from one another"
    assert any(unit.truncated for unit in one.units)
    assert (pair.ours.facts.dims, pair.ours.facts.max_sequence_length) == ({"dense": 32}, 48)
    assert pair.ours.facts.similarity == pair.theirs.facts.similarity


def test_a_lora_adapter_changes_the_numbers_as_in_the_other_family(pair: Pair, tmp_path: Path) -> None:
    plain = ask(pair.ours, TEXTS).vectors
    for seed in range(2):
        files = write_lora(pair.folder, tmp_path / str(seed), seed)
        one, other = (
            ask(adapter, TEXTS, lora=adapter.load_lora("l", files)).vectors for adapter in (pair.ours, pair.theirs)
        )
        assert np.abs(one - other).max() <= 1e-5
        assert np.abs(one - plain).max() > 1e-2
    np.testing.assert_array_equal(ask(pair.ours, TEXTS).vectors, plain)


def test_a_seeded_fault_in_what_is_sent_changes_the_numbers(pair: Pair) -> None:
    right = ask(pair.ours, texts(5), input_type="query")
    faults = {
        "prompt dropped": lambda ids: ids[8:],
        "special token doubled": lambda ids: np.append(ids, ids[-1]),
        "last token wrong": lambda ids: np.append(ids[:-1], 7),
    }
    for fault in faults.values():
        units = [replace_ids(unit, fault) for unit in right.units]
        wrong = np.stack([output.dense for output in pair.ours.finish(units, pair.ours.run(units))])
        assert np.abs(wrong - right.vectors).max() > 1e-2


def replace_ids(unit: Any, fault: Any) -> Any:
    return replace(unit, payload=replace(unit.payload, ids=fault(unit.payload.ids)))


def test_what_it_cannot_do_is_refused(served_once: SglangEncoder) -> None:
    with pytest.raises(InvalidInput, match=r"options\.normalize"):
        ask(served_once, ["a"], options={"normalize": False})
    with pytest.raises(InvalidInput, match=r"allowed: .* to 48 tokens"):
        ask(served_once, ["a"], options={"max_seq_length": 49})
    # The engine's own bound holds too, for what `prepare` never makes.
    (unit,) = served_once.prepare([Item(text="a")], task())
    with pytest.raises(InferenceError, match="refused a batch") as refused:
        served_once.finish([], served_once.run([replace_ids(unit, lambda ids: np.resize(ids, 100))]))
    assert refused.value.code == "INFERENCE_ERROR"
