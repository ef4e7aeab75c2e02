"""Vectors, token ids, usage and truncation are those of sie-pytorch, whose weights and files they share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_sglang.adapter import SglangEncoder
from sie_sglang.loading import load

from sie_core.contracts import InferenceError, InvalidInput, Item
from tests.pytorch.encoders import Answer, ask, context, serve, task
from tests.sglang.conftest import NAMES

SCRIPTS = "aäßéñçøžабвгд漢字かな한국어עברית🙂👩‍👩‍👧‍👦é \t\r\n\0.,;:!?-—\"'"


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


@pytest.mark.usefixtures("engine_python")
@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_and_the_tokens_are_those_of_the_other_family(embedders: Path, name: str) -> None:
    folder = embedders / "test" / name
    theirs = serve(folder)
    with served(folder) as ours:
        for role in (None, "query", "document"):
            one, other = (ask(adapter, texts(40), input_type=role) for adapter in (ours, theirs))
            assert told(one) == told(other)
            assert np.abs(one.vectors - other.vectors).max() <= 1e-5
        assert one.vectors.std() > 0.05, "vectors differ from one another"
        assert any(unit.truncated for unit in one.units)
        assert (ours.facts.dims, ours.facts.max_sequence_length) == ({"dense": 32}, 48)
        assert ours.facts.similarity == theirs.facts.similarity


@pytest.mark.usefixtures("engine_python")
def test_a_seeded_fault_in_what_is_sent_changes_the_numbers(embedders: Path) -> None:
    folder = embedders / "test" / "qwen3"
    with served(folder) as ours:
        right = ask(ours, texts(5), input_type="query")
        faults = {
            "prompt dropped": lambda ids: ids[8:],
            "special token doubled": lambda ids: np.append(ids, ids[-1]),
            "last token wrong": lambda ids: np.append(ids[:-1], 7),
        }
        for fault in faults.values():
            units = [replace_ids(unit, fault) for unit in right.units]
            wrong = np.stack([output.dense for output in ours.finish(units, ours.run(units))])
            assert np.abs(wrong - right.vectors).max() > 1e-2


def replace_ids(unit: Any, fault: Any) -> Any:
    return replace(unit, payload=replace(unit.payload, ids=fault(unit.payload.ids)))


@pytest.mark.usefixtures("engine_python")
def test_what_it_cannot_do_is_refused(embedders: Path) -> None:
    with served(embedders / "test" / "qwen2") as ours:
        with pytest.raises(InvalidInput, match=r"options\.normalize"):
            ask(ours, ["a"], options={"normalize": False})
        with pytest.raises(InvalidInput, match=r"allowed: .* to 48 tokens"):
            ask(ours, ["a"], options={"max_seq_length": 49})
        with pytest.raises(InferenceError, match="refused a batch") as refused:
            ours.finish([], long_run(ours))
        assert refused.value.code == "INFERENCE_ERROR"


def long_run(ours: SglangEncoder) -> Any:
    """Send what `prepare` never makes: the engine's own bound holds too."""
    (unit,) = ours.prepare([Item(text="a")], task())
    return ours.run([replace_ids(unit, lambda ids: np.resize(ids, 100))])
