"""Recorded passes: which bucket holds a batch, and that a replayed pass gives what a launched one does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sie_flash.graphs import MOST_GRAPHS, SEQUENCES, TOKENS, Graphs, bucket_of
from sie_flash.layout import VarlenLayout
from sie_flash.loop import VarlenLoop
from sie_pytorch.forward import INTERFACE, RunnerContext, Transfers

from sie_core.contracts import RunnerSpec
from tests.flash.plain import PLAIN
from tests.flash.test_loop import NAMES
from tests.pytorch.forward.support import (
    PACKED,
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    padded_states,
    reference_model,
)

CPU = Transfers(torch.device("cpu"))


def repeat(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """Record by doing the work again, in the same buffers: what a graph does, on the CPU."""
    result = work().clone()

    def replay() -> None:
        result.copy_(work())

    return replay, result


class GraphedLoop(VarlenLoop):
    """The loop whose short passes are recorded."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, PLAIN, repeat)


GRAPHED = RunnerSpec("graphed-loop", INTERFACE, "tests.flash.test_graphs:GraphedLoop", priority=40)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=300))
def test_a_bucket_holds_the_batch_and_gives_padding_a_sequence_of_its_own(lengths: list[int]) -> None:
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    bucket = bucket_of(int(bounds[-1]), len(lengths))
    if bucket is None:
        assert bounds[-1] > TOKENS[-1] or len(lengths) >= SEQUENCES[-1]
        return
    filled = bucket.bounds(bounds)
    assert (len(filled), filled[-1], filled.dtype) == (bucket.sequences + 1, bucket.tokens, np.int32)
    assert filled[: len(bounds)].tolist() == bounds.tolist()
    assert (np.diff(filled) >= 0).all()
    assert bucket.tokens == min(each for each in TOKENS if each >= bounds[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_pass_gives_what_transformers_gives(checkpoint: Callable[[str], Path], name: str) -> None:
    runner = build(checkpoint(name), [GRAPHED, *PACKED])
    assert runner.info.name == "graphed-loop"
    batch = batch_for(name)
    expected = padded_states(reference_model(name, checkpoint(name)), batch)
    assert deviation(forward(runner, batch), expected) < TOLERANCE
    assert deviation(forward(runner, batch), expected) < TOLERANCE


def run(
    ids: torch.Tensor, positions: torch.Tensor, segment_ids: torch.Tensor | None, layout: VarlenLayout
) -> torch.Tensor:
    """Tell each token's id and position, and how long its sequence is."""
    lengths = layout.bounds.cu_seqlens.diff()
    own = torch.repeat_interleave(lengths, lengths, output_size=len(ids))
    return torch.stack((ids, positions, own), 1).float()


def graphs(capture: Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]) -> Graphs:
    return Graphs(PLAIN, CPU, capture)


def ask(made: Graphs, lengths: list[int], variant: object = None) -> list[list[float]] | None:
    ids = torch.arange(sum(lengths)) + 7
    positions = torch.cat([torch.arange(each) for each in lengths])
    bounds = torch.tensor([0, *np.cumsum(lengths)])
    states = made(run, ids, positions, None, bounds, variant)
    return None if states is None else states.tolist()


def expected(lengths: list[int]) -> list[list[float]]:
    places = [(place, each) for each in lengths for place in range(each)]
    return [[7.0 + number, float(place), float(own)] for number, (place, own) in enumerate(places)]


def test_batches_of_one_bucket_share_a_graph_and_none_sees_another() -> None:
    made = graphs(repeat)
    first = ask(made, [5, 6, 2])
    assert ask(made, [1, 9]) == expected([1, 9])
    assert first == expected([5, 6, 2])
    assert ask(made, [16]) == expected([16])
    assert len(made._recorded) == 3 - 1


def test_a_pass_that_computes_something_else_has_a_graph_of_its_own() -> None:
    made = graphs(repeat)
    for variant in ((8,), (4,), (8,)):
        assert ask(made, [3], variant) == expected([3])
    assert len(made._recorded) == 2


def test_a_large_batch_and_one_beyond_the_most_graphs_are_left_to_be_launched() -> None:
    made = graphs(repeat)
    assert ask(made, [TOKENS[-1] + 1]) is None
    for number in range(MOST_GRAPHS):
        assert ask(made, [3], number) is not None
    assert ask(made, [3], MOST_GRAPHS) is None
    assert ask(made, [3], 0) == expected([3])


def test_a_pass_that_cannot_be_recorded_is_launched_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def refuse(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        asked.append(work)
        raise RuntimeError("operation not permitted when stream is capturing")

    made = graphs(refuse)
    assert ask(made, [3]) is None
    assert ask(made, [3]) is None
    assert len(asked) == 1
    assert "cannot be recorded as a CUDA graph (operation not permitted" in caplog.text


def test_a_pass_without_memory_is_no_reason_to_record_none_any_more() -> None:
    full = [True]

    def capture(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        if full.pop() if full else False:
            raise torch.OutOfMemoryError("out of memory")
        return repeat(work)

    made = graphs(capture)
    with pytest.raises(torch.OutOfMemoryError):
        ask(made, [3])
    assert ask(made, [3]) == expected([3])
