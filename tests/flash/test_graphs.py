"""Recorded passes: which bucket holds a batch, and that a replayed pass gives what a launched one does."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sie_flash.graphs import MOST_GRAPHS, SEQUENCES, TOKENS, Capture, CudaCapture, Graphs, Recorded, bucket_of
from sie_flash.kernels import Bounds, Kernel, Window
from sie_flash.layout import VarlenLayout
from sie_flash.loop import VarlenLoop
from sie_pytorch.devices.probes import CudaProbe
from sie_pytorch.forward import INTERFACE, Batch, RunnerContext, Transfers, recorded
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sie_core.contracts import Device, RunnerSpec
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
HELD = 1 << 20


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


def record(work: Callable[[], torch.Tensor]) -> Recorded:
    """Record `work` on the CPU; it says to hold a megabyte."""
    work()
    recorder = Recorder()
    with recorder:
        result = work()
    return Recorded(recorder.replay, result, HELD)


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
        super().__init__(context, ONE_OPERATOR, lambda: record)


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


def graphs(capture: Capture) -> Graphs:
    return Graphs(PLAIN, CPU, lambda: capture)


def batch_of(lengths: list[int], *, sent: bool = False) -> Batch:
    ids = torch.arange(sum(lengths)) + 7
    positions = torch.cat([torch.arange(each) for each in lengths])
    bounds = torch.tensor([0, *np.cumsum(lengths)])
    return Batch(ids, positions, bounds, bounds=bounds.int() if sent else None)


def ask(made: Graphs, lengths: list[int], variant: object = None, *, sent: bool = False) -> list[list[float]] | None:
    states = made(run, batch_of(lengths, sent=sent), variant)
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


SHARED = graphs(record)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.booleans())
def test_whatever_the_lengths_each_text_gets_its_own_states_back(lengths: list[int], sent: bool) -> None:
    found = ask(SHARED, lengths, sent=sent)
    if bucket_of(sum(lengths), len(lengths)) is None:
        assert found is None
    else:
        assert found == expected(lengths)


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


def failing(*errors: RuntimeError | None) -> Graphs:
    """Make graphs whose recordings end with these errors, one after the other, each of a `Capture` of its own."""
    left = list(errors)

    def make() -> Capture:
        spent = []

        def capture(work: Callable[[], torch.Tensor]) -> Recorded:
            assert not spent, "a recording follows a failed one in its pool of memory"
            if error := left.pop(0) if left else None:
                spent.append(error)
                raise error
            return record(work)

        return capture

    return Graphs(PLAIN, CPU, make)


ENDED = RuntimeError("CUDA error: operation failed due to a previous error during capture")


@pytest.mark.parametrize("error", [ENDED, torch.OutOfMemoryError("out of memory")], ids=["ended", "no memory"])
def test_a_bucket_that_cannot_be_recorded_is_launched_from_then_on_and_others_are_recorded(
    error: RuntimeError, caplog: pytest.LogCaptureFixture
) -> None:
    made = failing(error, error)
    assert [ask(made, [3]) for _ in range(3)] == [None] * 3
    assert ask(made, [30]) is None
    assert ask(made, [300]) == expected([300])
    assert caplog.text.count(f"cannot be recorded as a CUDA graph ({error})") == 1


def test_a_device_that_is_lost_while_a_pass_is_recorded_is_no_reason_to_launch_it() -> None:
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        ask(failing(lost), [3])


def test_the_memory_of_graphs_is_counted_and_given_back() -> None:
    gc.collect()
    before = recorded.held_bytes(0)
    made, other = failing(None, RuntimeError("not permitted")), graphs(record)
    assert ask(made, [3]) == ask(other, [3]) == expected([3])
    assert ask(made, [30]) is None
    assert recorded.held_bytes(0) - before == 2 * HELD
    assert recorded.held_bytes(1) == 0
    kept = made._recorded[next(iter(made._recorded))]
    recorded.give_back(1)
    assert recorded.held_bytes(0) - before == 2 * HELD
    recorded.give_back(0)
    assert recorded.held_bytes(0) == 0
    assert kept is not None
    assert kept(batch_of([5]), torch.tensor([0, 5], dtype=torch.int32)).tolist() == expected([5]), "one at work"
    assert ask(made, [30]) is None, "what cannot be recorded is not tried again"
    assert ask(made, [3]) == expected([3])
    assert recorded.held_bytes(0) == HELD
    del made, kept
    gc.collect()  # the error's traceback holds it
    assert recorded.held_bytes(0) == 0


def test_beyond_the_bytes_of_a_model_no_pass_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sie_flash.graphs.MOST_BYTES", HELD + 16 * 3 * 4 + 1)
    made = graphs(record)
    assert ask(made, [3]) is not None
    assert ask(made, [30]) is not None
    assert ask(made, [50]) is None
    assert ask(made, [30]) == expected([30])


def test_caches_are_freed_only_once_a_recording_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    freed = threading.Event()

    def empty() -> None:
        events.append("freed")
        freed.set()

    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())

    def capture(work: Callable[[], torch.Tensor]) -> Recorded:
        thread.start()
        freed.wait(0.2)
        events.append("recorded")
        return record(work)

    thread = threading.Thread(target=lambda: CudaProbe().free_caches(Device("cuda")))
    made = graphs(capture)
    assert ask(made, [3]) == expected([3])
    thread.join(30.0)
    assert events == ["recorded", "freed"]
    assert made._recorded == {}


@pytest.mark.parametrize("fails", [False, True])
def test_a_recording_leaves_the_thread_s_stream_as_it_was(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ["own"]

    class Stream:
        def wait_stream(self, other: object) -> None: ...

    @contextmanager
    def on(given: object, **_: object) -> Iterator[None]:
        stream.append("recording's")
        yield
        if fails:  # PyTorch leaves its stream only after a good end
            raise ENDED
        stream.pop()

    cuda = {
        "graph_pool_handle": lambda: (0, 1),
        "Stream": lambda device: Stream(),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "current_stream": lambda device: SimpleNamespace(wait_stream=lambda other: None, name=stream[-1]),
        "stream": lambda given: nullcontext(),
        "graph": on,
        "set_stream": lambda given: stream.__setitem__(slice(None), [given.name]),
        "memory_snapshot": lambda: [
            {"segment_pool_id": (0, 1), "total_size": 50, "allocated_size": 20},
            {"segment_pool_id": (0, 0), "total_size": 900, "allocated_size": 0},
        ],
    }
    for name, stand_in in cuda.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        assert CudaCapture(torch.device("cuda"))(lambda: torch.ones(1)).held_bytes == 30
    assert stream == ["own"]


def test_two_models_are_recorded_one_after_the_other() -> None:
    both = threading.Barrier(2)

    def capture(work: Callable[[], torch.Tensor]) -> Recorded:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
            raise AssertionError("two recordings at once")
        return record(work)

    with ThreadPoolExecutor(2) as threads:
        states = threads.map(lambda length: ask(graphs(capture), [length]), (3, 4))
    assert list(states) == [expected([3]), expected([4])]
