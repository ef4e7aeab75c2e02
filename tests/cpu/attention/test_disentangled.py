"""The kernels' disentangled attention is DeBERTa's: each build, each kind of relative positions, any length."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_cpu.builds import Build
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward.deberta.distances import Distances

from tests.pytorch.forward.deberta.test_deberta_runner import CONFIGS, batch_of, deberta
from tests.pytorch.forward.support import TOLERANCE, build, deviation, forward, packed_batch, padded_states
from tests.pytorch.forward.test_low_rank import factors_for

pytestmark = pytest.mark.usefixtures("kernel_build")


def saved(folder: Path, **config: Any) -> tuple[Any, Path]:
    model = deberta(**config)
    model.save_pretrained(folder)
    return model, folder


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_states_are_transformers_own(
    config: dict[str, Any], tmp_path: Path, serve: Callable, limit: float, kernel_build: Build
) -> None:
    model, folder = saved(tmp_path, **config)
    runner, batch = serve(folder), batch_of(model)
    states = forward(runner, batch)
    exact = padded_states(copy.deepcopy(model).double(), batch)
    error = deviation(states, exact)
    assert error <= limit
    if kernel_build.precision == "bfloat16":
        assert error < deviation(padded_states(copy.deepcopy(model).bfloat16(), batch), exact)
    one_segment = replace(batch, cu_seqlens=batch.cu_seqlens[[0, -1]])
    assert deviation(forward(runner, one_segment), states) > limit


@pytest.mark.parametrize("lengths", [(700,), (400, 300, 3)], ids=["a long text", "long texts"])
def test_texts_beyond_every_bucket_are_attended_whole(
    lengths: tuple[int, ...], tmp_path: Path, serve: Callable, limit: float
) -> None:
    model, folder = saved(tmp_path, position_buckets=64, max_relative_positions=128)
    batch = packed_batch(lengths)
    expected = padded_states(model, batch)
    assert deviation(forward(serve(folder), batch), expected) <= limit


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_row_of_a_batch_equals_the_same_text_alone_bit_for_bit(threads: int, tmp_path: Path, serve: Callable) -> None:
    _, folder = saved(tmp_path)
    runner = serve(folder, threads)
    for lengths in ((3,) * 90, (90, 1), tuple(range(1, 60))):
        batch = packed_batch(lengths)
        alone = torch.cat([forward(runner, batch.one(place)) for place in batch.places])
        assert torch.equal(forward(runner, batch), alone)


@pytest.mark.parametrize("config", [{"share_att_key": False}, {"embedding_size": 24}], ids=["positions", "embeddings"])
def test_low_rank_factors_change_positions_and_narrow_embeddings_too(
    config: dict[str, Any], tmp_path: Path, serve: Callable, limit: float
) -> None:
    model, folder = saved(tmp_path, **config)
    runner, batch = serve(folder), batch_of(model)
    shapes = dict(runner.linear_shapes)
    low_rank = factors_for(shapes, shapes, seed=1)
    plain = forward(runner, batch)
    with torch.no_grad():
        for layer, factors in low_rank.factors.items():
            model.get_submodule(layer).weight += factors.upper @ factors.lower
    expected = padded_states(model, batch)
    assert deviation(forward(runner, batch, low_rank), expected) <= 2 * limit
    assert deviation(plain, expected) > 10 * TOLERANCE
    assert torch.equal(forward(runner, batch), plain)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"conv_kernel_size": 3}, "convolution"),
        ({"pos_att_type": ["c2p"]}, "both ways"),
        ({"relative_attention": False}, "both ways"),
        ({"position_buckets": 7, "max_relative_positions": 33}, "beyond 33"),
    ],
)
def test_a_model_of_another_kind_is_left_to_another(
    config: dict[str, Any], reason: str, tmp_path: Path, kernel_build: Build
) -> None:
    _, folder = saved(tmp_path, **config)
    info = build(folder, sie_runners(), precision=kernel_build.precision).info
    assert info.name == "padded"
    assert reason in info.reason


def test_tokens_that_nothing_attends_to_are_left_to_transformers(tmp_path: Path, kernel_build: Build) -> None:
    _, folder = saved(tmp_path)
    info = build(folder, sie_runners(), precision=kernel_build.precision, expands_queries=True).info
    assert info.name.startswith("padded")
    assert "not cpu-kernels: " in info.reason
    assert "nothing attends to" in info.reason


def test_a_wrong_column_of_far_distances_is_seen_at_load(
    tmp_path: Path, kernel_build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel_build.precision != "float32":
        pytest.skip("this test takes the tolerance of float32")
    right = Distances.rows

    def wrong(self: Distances, length: int) -> torch.Tensor:
        rows = right(self, length)
        rows[1:-1] = rows[1:-1].roll(1)
        return rows

    monkeypatch.setattr(Distances, "rows", wrong)
    _, folder = saved(tmp_path, position_buckets=256, max_relative_positions=512)
    info = build(folder, sie_runners()).info
    assert info.name == "padded"
    assert "not cpu-kernels: its states differ from each sequence alone" in info.reason
