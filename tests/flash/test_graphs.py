"""Recorded passes: which bucket holds a batch, and that a replayed pass gives what a launched one does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sie_flash.graphs import MOST_GRAPHS, SEQUENCES, TOKENS, Graphs, bucket_of
from sie_flash.kernels import Bounds, Kernel, Window
from sie_flash.layout import VarlenLayout
from sie_flash.loop import VarlenLoop
from sie_pytorch.forward import INTERFACE, Batch, RunnerContext, Transfers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sie_core.contracts import RunnerSpec
from tests.flash.plain import PLAIN
from tests.flash.test_loop import NAMES
from tests.pytorch.forward.support import (
    LOOPED,
    PACKED,
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    reference_model,
)
from tests.pytorch.forward.test_probes import holds, write
from tests.pytorch.models import DECODER

CPU = Transfers(torch.device("cpu"))


class Recorder(TorchDispatchMode):
    """Records operators with the tensors they read and write, as a CUDA graph does: Python does not run again."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not all(isinstance(each, torch.Tensor) for each in tree_leaves(result)):  # Python looks at a value
            raise RuntimeError("operation not permitted when stream is capturing")
        self._calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self._calls:
            again = func(*args, **kwargs)
            for kept, made in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if kept.data_ptr() != made.data_ptr():  # neither a view nor in place
                    kept.copy_(made)


def record(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """Record `work` on the CPU."""
    work()
    recorder = Recorder()
    with recorder:
        result = work()
    return recorder.replay, result


@torch.library.custom_op("sie_tests::attend", mutates_args=())
def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: torch.Tensor,
    longest: int,
    scale: float | None,
    left: int,
    right: int,
) -> torch.Tensor:
    bounds = Bounds(cu_seqlens, longest)
    return PLAIN.attend(query, key, value, bounds, bounds, scale, (left, right))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    queries: Bounds,
    keys: Bounds,
    scale: float | None,
    window: Window,
) -> torch.Tensor:
    """Attend as `PLAIN` does, in one operator that reads the bounds when it runs, as a kernel does."""
    assert queries is keys
    states: torch.Tensor = _attend(query, key, value, queries.cu_seqlens, queries.longest, scale, *window)
    return states


ONE_OPERATOR = Kernel("one operator", attend, PLAIN.dtypes)


class GraphedLoop(VarlenLoop):
    """The loop whose short passes are recorded."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, ONE_OPERATOR, record)


GRAPHED = RunnerSpec("graphed-loop", INTERFACE, "tests.flash.test_graphs:GraphedLoop", features=LOOPED, priority=40)


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


BOUND = 64
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0, 4.0, 6.0, 9.0]}


@pytest.mark.parametrize("rope", [LONGROPE, {"rope_type": "dynamic"}], ids=["longrope", "dynamic"])
def test_no_graph_is_tried_where_frequencies_follow_the_batch(
    rope: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"rope_theta": 10000.0, "original_max_position_embeddings": BOUND, "factor": 8.0, **rope}
    config = "Phi3Config" if rope is LONGROPE else "LlamaConfig"
    more = {"original_max_position_embeddings": BOUND, "sliding_window": None} if rope is LONGROPE else {}
    model = write(tmp_path, config, **DECODER, rope_parameters=given, **more)
    runner = build(tmp_path, [GRAPHED, *PACKED])
    assert runner.info.name == "graphed-loop", runner.info.reason
    # All fall into one bucket; only the first of longrope is beyond the bound.
    for lengths in ((100 if rope is LONGROPE else BOUND, 1), (60, 10), (9, 64)):
        assert holds(runner, model, packed_batch(lengths))
    assert "cannot be recorded" not in caplog.text


def run(batch: Batch, layout: VarlenLayout) -> torch.Tensor:
    """Tell each token's id and position, and how long its sequence is."""
    lengths = layout.bounds.cu_seqlens.diff()
    own = torch.repeat_interleave(lengths, lengths, output_size=len(batch.ids))
    return torch.stack((batch.ids, batch.positions, own), 1).float()


def graphs(capture: Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]) -> Graphs:
    return Graphs(PLAIN, CPU, capture)


def ask(made: Graphs, lengths: list[int], variant: object = None) -> list[list[float]] | None:
    ids = torch.arange(sum(lengths)) + 7
    positions = torch.cat([torch.arange(each) for each in lengths])
    bounds = torch.tensor([0, *np.cumsum(lengths)])
    states = made(run, Batch(ids, positions, bounds), variant)
    return None if states is None else states.tolist()


def expected(lengths: list[int]) -> list[list[float]]:
    places = [(place, each) for each in lengths for place in range(each)]
    return [[7.0 + number, float(place), float(own)] for number, (place, own) in enumerate(places)]


def test_batches_of_one_bucket_share_a_graph_and_none_sees_another() -> None:
    made = graphs(record)
    first = ask(made, [5, 6, 2])
    assert ask(made, [1, 9]) == expected([1, 9])
    assert first == expected([5, 6, 2])
    assert ask(made, [16]) == expected([16])
    assert len(made._recorded) == 3 - 1


def test_a_pass_that_computes_something_else_has_a_graph_of_its_own() -> None:
    made = graphs(record)
    for variant in ((8,), (4,), (8,)):
        assert ask(made, [3], variant) == expected([3])
    assert len(made._recorded) == 2


def test_a_large_batch_and_one_beyond_the_most_graphs_are_left_to_be_launched() -> None:
    made = graphs(record)
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


def test_a_pass_without_memory_for_its_graph_is_launched_and_others_are_recorded() -> None:
    full = [True]

    def capture(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        if full.pop() if full else False:
            raise torch.OutOfMemoryError("out of memory")
        return record(work)

    made = graphs(capture)
    assert ask(made, [3]) is None
    assert ask(made, [3]) is None
    assert ask(made, [30]) == expected([30])


def test_two_models_are_recorded_one_after_the_other() -> None:
    both = threading.Barrier(2)

    def capture(work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
            raise AssertionError("two recordings at once")
        return record(work)

    with ThreadPoolExecutor(2) as threads:
        states = threads.map(lambda length: ask(graphs(capture), [length]), (3, 4))
    assert list(states) == [expected([3]), expected([4])]
