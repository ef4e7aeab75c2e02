"""Every runner adds low-rank factors to what it computes, as if they had been merged into the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import BuiltRunner, Factors, LowRank
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import preempted_by
from tests.pytorch.forward.support import (
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.models import ARCHITECTURES, described

SPECS = {spec.name: spec for spec in (*RUNNERS, *sie_runners())}
CASES = [
    *(("", name) for name in ARCHITECTURES),
    *(("packed", name) for name, architecture in ARCHITECTURES.items() if architecture.packed),
    *((runner, name) for runner in ("encoder-loop", "cpu-kernels") for name in described(SPECS[runner].features)),
    ("deberta", "deberta-v2"),
]
"""Runners by name, the padded one without any, and the architectures each serves."""


def serve(runner: str, folder: Path) -> BuiltRunner:
    built = build(folder, [SPECS[runner]] if runner else [], threads=2)
    assert built.info.name.startswith(runner or "padded"), built.info.reason
    return built


def factors_for(names: Iterable[str], shapes: dict[str, tuple[int, int]], seed: int, rank: int = 3) -> LowRank:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * 0.2

    return LowRank({name: Factors(draw(rank, shapes[name][1]), draw(shapes[name][0], rank)) for name in names})


def states(runner: BuiltRunner, name: str, low_rank: LowRank | None) -> torch.Tensor:
    return forward(runner, batch_for(name), low_rank)


def merged(name: str, folder: Path, low_rank: LowRank) -> Any:
    """Add the factors to the weights of transformers' own model."""
    model = reference_model(name, folder)
    with torch.no_grad():
        for layer, factors in low_rank.factors.items():
            model.get_submodule(layer).weight += factors.upper @ factors.lower
    return model


@pytest.mark.parametrize(("runner", "name"), CASES)
def test_states_equal_those_of_merged_weights(runner: str, name: str, checkpoint: Callable[[str], Path]) -> None:
    built = serve(runner, checkpoint(name))
    plain = states(built, name, None)
    shapes = dict(built.linear_shapes)
    every = factors_for(shapes, shapes, seed=1)
    some = factors_for([layer for number, layer in enumerate(shapes) if number % 3 == 1], shapes, seed=2, rank=5)
    for low_rank in (every, some, every):
        model, batch = merged(name, checkpoint(name), low_rank), batch_for(name)
        expected = torch.cat([padded_states(model, batch.one(place)) for place in batch.places])
        assert deviation(states(built, name, low_rank), expected) <= 2 * TOLERANCE
        assert deviation(plain, expected) > 10 * TOLERANCE
    assert torch.equal(states(built, name, None), plain)


@pytest.mark.parametrize("runner", ["", "packed", "encoder-loop", "cpu-kernels"])
def test_factors_and_tokens_that_nothing_attends_to_go_together(runner: str, checkpoint: Callable[[str], Path]) -> None:
    built, batch = serve(runner, checkpoint("bert")), with_expansion(batch_for("bert"))
    shapes = dict(built.linear_shapes)
    low_rank = factors_for(shapes, shapes, seed=1)
    expected = padded_states(merged("bert", checkpoint("bert"), low_rank), batch)
    assert deviation(forward(built, batch, low_rank), expected) <= 2 * TOLERANCE


@pytest.mark.parametrize("runner", ["", "packed", "encoder-loop", "cpu-kernels"])
def test_what_a_runner_derives_from_factors_goes_with_them(runner: str, checkpoint: Callable[[str], Path]) -> None:
    built = serve(runner, checkpoint("bert"))
    shapes = dict(built.linear_shapes)
    low_rank = factors_for(shapes, shapes, seed=1)
    states(built, "bert", low_rank)
    kept = getattr(built._runner, "_low_ranks", {})
    del low_rank
    assert len(kept) == 0


def test_the_runners_agree_on_the_layers_that_factors_are_for(checkpoint: Callable[[str], Path]) -> None:
    shapes = {runner: dict(serve(runner, checkpoint("nomic")).linear_shapes) for runner in ("encoder-loop", "packed")}
    assert shapes["encoder-loop"].items() <= shapes["packed"].items()
    assert dict(serve("cpu-kernels", checkpoint("nomic")).linear_shapes) == shapes["encoder-loop"]


@pytest.mark.parametrize(("runner", "name"), [("", "mpnet"), ("deberta", "deberta-v2")])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_preempted_batch_with_factors_and_what_preempts_it_without_them_get_the_same_numbers(
    runner: str, name: str, threads: int, checkpoint: Callable[[str], Path]
) -> None:
    built = build(checkpoint(name), [SPECS[runner]] if runner else [], threads=threads)
    shapes = dict(built.linear_shapes)
    low_rank = factors_for(shapes, shapes, 3)
    batch, meanwhile = packed_batch((50,) * 10 + (3,) * 20), packed_batch((7, 2))
    expected, short = forward(built, batch, low_rank), forward(built, meanwhile)
    assert deviation(expected, forward(built, batch)) > TOLERANCE
    nested: list[torch.Tensor] = []

    def run_another() -> None:
        with preempted_by(None):
            nested.append(forward(built, meanwhile))

    with preempted_by(run_another):
        states = forward(built, batch, low_rank)
    assert torch.equal(states, expected)
    assert nested
    assert all(torch.equal(each, short) for each in nested)
