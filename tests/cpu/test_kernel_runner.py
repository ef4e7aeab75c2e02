"""The compiled kernels compute what transformers computes: every build this processor runs, every architecture."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_cpu import builds, kernels
from sie_cpu.builds import Build
from sie_cpu.forward import encoder as kernel_runner
from sie_cpu.forward.batch import spans
from sie_cpu.kernels import Kernels
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.forward.layout import PackedLayout
from sie_pytorch.forward.specs import RUNNERS
from sie_text.architectures import Feature, find_architecture

from sie_core.contracts import preempted_by
from tests.cpu.conftest import LIMIT, RUNNABLE
from tests.pytorch.forward.support import (
    SHORT,
    TOLERANCE,
    PackedBatch,
    batch_for,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.forward.test_half_precision import write_as
from tests.pytorch.forward.test_key_lengths import expected as states_under_mask
from tests.pytorch.forward.test_new_architecture import AGAINST_FLOAT64, reference
from tests.pytorch.models import ARCHITECTURES, LAYERS_OF, described, write_checkpoint, write_new

SPECS = sie_runners()
NAMES = described(SPECS[0].features)
PLAIN = described(SPECS[0].features - {Feature.DISENTANGLED})
"""Those whose attention knows tokens alone: DeBERTa's is in attention/test_disentangled.py."""
WITHOUT_POSITIONS = frozenset({"roberta", "xlm-roberta", "camembert", "data2vec-text", "mpnet", "t5"})
"""Those that count positions from the ids, and T5, which has none."""
UNSCALED = 2
"""How many times as far half precision may move T5's states: its attention scores are not scaled down."""

pytestmark = pytest.mark.usefixtures("kernel_build")
on_the_loosest_build = pytest.mark.parametrize(
    "kernel_build", RUNNABLE[-1:], indirect=True, ids=lambda build: build.library
)
"""For what the code around the kernels does, which is that of every build: the last one has the widest limit."""


def limit_of(name: str, limit: float) -> float:
    return limit if name != "t5" or limit == TOLERANCE else UNSCALED * limit


def alone(runner: BuiltRunner, batch: PackedBatch) -> torch.Tensor:
    return torch.cat([forward(runner, batch.one(place)) for place in batch.places])


@pytest.mark.parametrize("name", NAMES)
def test_its_states_equal_the_padded_model(
    name: str, checkpoint: Callable[[str], Path], serve: Callable, limit: float, kernel_build: Build
) -> None:
    model, batch = reference_model(name, checkpoint(name)), batch_for(name)
    expected = padded_states(model, batch)
    error = deviation(forward(serve(checkpoint(name)), batch), expected)
    assert error <= limit_of(name, limit)
    if kernel_build.precision == "bfloat16":
        assert error < deviation(padded_states(model.to(torch.bfloat16), batch).float(), expected)


@pytest.mark.parametrize("name", PLAIN)
def test_tokens_that_nothing_attends_to_change_nothing_but_themselves(
    name: str, checkpoint: Callable[[str], Path], serve: Callable, limit: float
) -> None:
    runner, batch = serve(checkpoint(name), expands_queries=True), with_expansion(batch_for(name))
    expected = states_under_mask(name, checkpoint(name), batch)
    states = forward(runner, batch)
    error = deviation(states, expected)
    assert error <= limit_of(name, limit)
    assert deviation(forward(runner, replace(batch, key_lengths=None)), expected) > max(10 * TOLERANCE, 2 * error)
    if name in {"bert", "modernbert"}:  # others' embeddings depend on the rows beside them in their last bits
        assert torch.equal(states, alone(runner, batch))


def test_a_sequence_that_sees_none_of_its_tokens_loses_no_number(
    checkpoint: Callable[[str], Path], serve: Callable, limit: float
) -> None:
    batch = replace(packed_batch((40, 7, 20)), key_lengths=torch.tensor([0, 7, 0]))
    expected = padded_states(reference_model("modernbert", checkpoint("modernbert"), "sdpa"), batch)
    assert deviation(forward(serve(checkpoint("modernbert")), batch), expected) <= limit


def test_key_lengths_of_any_kind_are_read_and_none_leaves_its_sequence(
    checkpoint: Callable[[str], Path], serve: Callable
) -> None:
    runner, batch = serve(checkpoint("bert"), expands_queries=True), packed_batch((40, 7, 20, 9))
    expected = forward(runner, replace(batch, key_lengths=torch.tensor([30, 7, 0, 9])))
    alike = (
        torch.tensor([30, 7, 0, 9], dtype=torch.int32),
        torch.tensor([30, -1, 7, -1, 0, -1, 9, -1])[::2],
        torch.tensor([30, 1 << 40, -(1 << 40), 10]),
    )
    for key_lengths in alike:
        assert torch.equal(forward(runner, replace(batch, key_lengths=key_lengths)), expected)


def test_a_projection_of_embeddings_in_half_precision_is_taken_as_the_same_numbers_in_float32(
    checkpoint: Callable[[str], Path], tmp_path: Path, serve: Callable
) -> None:
    half, full = (
        serve(write_as(tmp_path / str(dtype), checkpoint("electra"), lambda _, dtype=dtype: dtype))
        for dtype in (torch.float16, torch.float32)
    )
    assert torch.equal(forward(half, batch_for("electra")), forward(full, batch_for("electra")))


def test_every_record_with_layers_is_tested() -> None:
    records = (find_architecture(name) for name, layers in LAYERS_OF.items() if layers.needs <= SPECS[0].features)
    assert {ARCHITECTURES[name].config().model_type for name in NAMES} | {"gte", "mt5"} == {
        each.served_as for each in records if each
    }


def test_gte_equals_its_description(tmp_path: Path, serve: Callable, limit: float) -> None:
    batch = packed_batch(SHORT, types=2)
    states = forward(serve(write_new(tmp_path)), batch)
    assert deviation(states, reference(tmp_path, batch)) <= max(limit, AGAINST_FLOAT64)


@pytest.mark.parametrize("name", ["bert", "nomic"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_row_of_a_batch_equals_the_same_text_alone_bit_for_bit(
    name: str, threads: int, checkpoint: Callable[[str], Path], serve: Callable
) -> None:
    runner = serve(checkpoint(name), threads)
    for lengths in (SHORT, (3,) * 90, (90, 1), tuple(range(1, 60))):
        batch = packed_batch(lengths)
        assert torch.equal(forward(runner, batch), alone(runner, batch))


def test_sizes_that_fill_no_vector_are_padded_without_a_trace(
    tmp_path: Path, serve: Callable, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: Sequence[dict[str, Any]] = (
        {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50},
        {"hidden_size": 72, "num_attention_heads": 1, "intermediate_size": 130},
        {"hidden_size": 160, "num_attention_heads": 2, "intermediate_size": 64},
    )
    for number, changes in enumerate(sizes):
        bert = ARCHITECTURES["bert"]
        config = bert.config()
        config.update(changes)
        monkeypatch.setitem(ARCHITECTURES, "bert", replace(bert, config=lambda config=config: config))
        folder = write_checkpoint("bert", tmp_path / str(number))
        batch = packed_batch(SHORT)
        expected = padded_states(reference_model("bert", folder), batch)
        assert deviation(forward(serve(folder), batch), expected) <= limit
        monkeypatch.setitem(ARCHITECTURES, "bert", bert)


def test_a_text_of_thousands_of_tokens_is_attended_whole(tmp_path: Path, serve: Callable, limit: float) -> None:
    folder = write_new(tmp_path)
    batch = packed_batch((2500, 70))
    loop = build(folder, RUNNERS, precision="float32")
    assert deviation(forward(serve(folder), batch), forward(loop, batch)) <= limit


@on_the_loosest_build
@pytest.mark.parametrize("name", PLAIN)
def test_seeded_faults_are_seen(
    name: str, checkpoint: Callable[[str], Path], serve: Callable, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, runner = batch_for(name), serve(checkpoint(name))
    states = forward(runner, batch)
    one_segment = replace(batch, cu_seqlens=batch.cu_seqlens[[0, -1]])
    assert deviation(forward(runner, one_segment), states) > limit
    stretched = replace(batch, positions=(batch.positions * 2).clamp(max=int(batch.positions.max())))
    if name not in WITHOUT_POSITIONS:
        assert deviation(forward(runner, stretched), states) > limit
    other = build(checkpoint(name), RUNNERS, precision="float32")
    right = PackedLayout.attend
    narrow = max(batch.cu_seqlens.diff().tolist()) - 1
    faults: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = (
        lambda facts: {"causal": not facts["causal"]},
        lambda facts: {"window": narrow},
    )
    for fault in faults:

        def wrong(self: PackedLayout, *states: torch.Tensor, fault: Any = fault, **facts: Any) -> Any:
            return right(self, *states, **{**facts, **fault(facts)})

        monkeypatch.setattr(PackedLayout, "attend", wrong)
        assert deviation(states, forward(other, batch)) > LIMIT["float32"]
        monkeypatch.setattr(PackedLayout, "attend", right)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_seen(
    off: int, checkpoint: Callable[[str], Path], serve: Callable, kernel_build: Build
) -> None:
    runner, batch = serve(checkpoint("modernbert")), batch_for("modernbert")
    states = forward(runner, batch)
    runner._runner._stack._config.sliding_window += off
    assert deviation(forward(runner, batch), states) > LIMIT[kernel_build.precision]


def test_a_lost_number_stays_lost(checkpoint: Callable[[str], Path], serve: Callable) -> None:
    runner = serve(checkpoint("bert"))
    table = runner._runner._entry.embeddings.word_embeddings
    batch = batch_for("bert")
    with torch.inference_mode():
        table.weight[batch.ids[0]] = float("nan")
    first = batch.places[0]
    assert forward(runner, batch)[first].isnan().all()


@on_the_loosest_build
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_is_preempted_within_layers_gets_the_same_numbers(
    name: str, checkpoint: Callable[[str], Path], serve: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, batch, meanwhile = serve(checkpoint(name)), batch_for(name), packed_batch((7, 2))
    expected, short = forward(runner, batch), forward(runner, meanwhile)
    nested: list[torch.Tensor] = []

    def run_another() -> None:
        with preempted_by(None):
            nested.append(forward(runner, meanwhile))

    times = []
    for most in (kernel_runner.PRODUCTS_AT_ONCE, 0):
        monkeypatch.setattr(kernel_runner, "PRODUCTS_AT_ONCE", most)
        monkeypatch.setattr(kernel_runner, "LEAST_AT_ONCE", 10)
        nested.clear()
        with preempted_by(run_another):
            states = forward(runner, batch)
        assert torch.equal(states, expected)
        assert all(torch.equal(each, short) for each in nested)
        times.append(len(nested))
    layers = times[0] + 1
    sequences_apart = times[1] + 1
    assert layers > 1
    assert sequences_apart >= 3 * layers  # about 20 tokens at once: the long ones alone, the short ones together


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_batch_that_is_preempted_within_layers_sees_the_same_tokens(
    name: str, checkpoint: Callable[[str], Path], serve: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, batch = serve(checkpoint(name), expands_queries=True), with_expansion(batch_for(name))
    expected = forward(runner, batch)
    monkeypatch.setattr(kernel_runner, "PRODUCTS_AT_ONCE", 0)
    monkeypatch.setattr(kernel_runner, "LEAST_AT_ONCE", 1)
    with preempted_by(lambda: None):
        assert torch.equal(forward(runner, batch), expected)


def test_many_callers_share_the_threads(checkpoint: Callable[[str], Path], serve: Callable) -> None:
    from concurrent.futures import ThreadPoolExecutor

    runners = [serve(checkpoint("bert"), 3) for _ in range(4)]
    batch = packed_batch((40, 7, 80, 3))
    expected = forward(runners[0], batch)
    with ThreadPoolExecutor(4) as pool:
        for states in pool.map(lambda runner: [forward(runner, batch) for _ in range(50)], runners):
            assert all(torch.equal(one, expected) for one in states)


@pytest.mark.parametrize("field", ["ids", "types", "positions"])
def test_a_token_without_a_row_in_the_embeddings_is_refused(
    field: str, checkpoint: Callable[[str], Path], serve: Callable
) -> None:
    runner, batch = serve(checkpoint("bert")), packed_batch((7, 3), types=2)
    for beyond in (-1, 10**6):
        values = getattr(batch, field).clone()
        values[8] = beyond
        with pytest.raises(IndexError, match="beyond the embeddings"):
            forward(runner, replace(batch, **{field: values}))


def test_an_activation_it_lacks_is_left_to_another(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    folder = write_checkpoint("bert", tmp_path)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "gelu_fast"'))
    info = build(folder, (*SPECS, *RUNNERS)).info
    assert info.name == "packed"
    assert "not cpu-kernels: its activation 'gelu_fast' is none of gelu" in info.reason


def test_without_a_build_the_encoder_loop_serves(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    info = build(checkpoint("bert"), (*SPECS, *RUNNERS), precision="float32").info
    assert info.name == "encoder-loop"
    assert "not cpu-kernels: " in info.reason


def test_a_library_of_another_version_is_refused(kernel_build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "INTERFACE", kernels.INTERFACE + 1)
    with pytest.raises(OSError, match="built for another version"):
        Kernels(kernel_build)


def test_a_library_with_a_structure_of_another_size_is_refused_by_its_name(
    kernel_build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Layer(kernels.STRUCTURES[2]):  # type: ignore[misc, name-defined]
        _fields_ = (("added", ctypes.c_int64),)

    monkeypatch.setattr(kernels, "STRUCTURES", (*kernels.STRUCTURES[:2], Layer, *kernels.STRUCTURES[3:]))
    with pytest.raises(OSError, match=r"another version.*its Layer takes \d+ bytes, not \d+"):
        Kernels(kernel_build)


def test_a_build_says_what_it_is(kernel_build: Build) -> None:
    loaded = Kernels(kernel_build)
    assert loaded.weight_bytes == {"float32": 4, "bfloat16": 2}[kernel_build.precision]
    assert loaded.panel % loaded.lanes == 0


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [
        ([120] * 5, 300, [2, 2, 1]),
        ([120] * 6, 200, [2, 2, 2]),  # a little longer, as one text would keep the threads waiting for each other
        ([480] * 3, 300, [1, 1, 1]),
        ([7, 8, 9, 10], 300, [4]),
        ([10, 290, 10, 10], 300, [2, 2]),
    ],
)
def test_a_batch_that_may_be_preempted_is_cut_where_both_threads_are_equally_busy(
    lengths: list[int], most: int, expected: list[int]
) -> None:
    bounds = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    parts = list(spans(bounds, most, 2))
    assert [last - first for first, last in parts] == expected
    assert [first for first, _ in parts] == [0, *(last for _, last in parts[:-1])]
