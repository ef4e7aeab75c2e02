"""Seeded faults: each must put the states beyond the tolerance that the tests of the families hold without one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sie_pytorch.forward.layout import PackedLayout

from tests.pytorch.forward.support import TOLERANCE, batch_for, deviation, forward
from tests.pytorch.models import ARCHITECTURES

PACKED = {name: architecture for name, architecture in ARCHITECTURES.items() if architecture.packed}
WINDOWED = [name for name, architecture in PACKED.items() if architecture.window]
LEARNED = [name for name, architecture in PACKED.items() if architecture.learned_positions]


@pytest.fixture
def error_of(padded: Callable, runner: Callable) -> Callable[..., float]:
    """Measure the packed states of an architecture, as the tests of the families do."""

    def measure(name: str, **changes: Any) -> float:
        return deviation(forward(runner(name), replace(batch_for(name), **changes)), padded(name, "eager"))

    return measure


@pytest.fixture
def change_attention(runner: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have every attention call of an architecture see other keyword arguments."""

    def seed(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        runner(name)  # built before the fault, or its own proof would pass the packed runner over
        right = PackedLayout.attend

        def wrong(self: PackedLayout, *states: torch.Tensor, **facts: Any) -> torch.Tensor:
            return right(self, *states, **change(facts))

        monkeypatch.setattr(PackedLayout, "attend", wrong)

    return seed


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_seen(name: str, off: int, error_of: Callable, change_attention: Callable) -> None:
    change_attention(name, lambda facts: {**facts, "window": facts["window"] and facts["window"] + off})
    assert error_of(name) > TOLERANCE


@pytest.mark.parametrize("name", PACKED)
def test_a_flipped_causal_flag_is_seen(name: str, error_of: Callable, change_attention: Callable) -> None:
    change_attention(name, lambda facts: {**facts, "causal": not facts["causal"]})
    assert error_of(name) > TOLERANCE


@pytest.mark.parametrize("name", PACKED)
def test_the_whole_batch_as_one_segment_is_seen(name: str, error_of: Callable) -> None:
    batch = batch_for(name)
    assert error_of(name, cu_seqlens=batch.cu_seqlens[[0, -1]]) > TOLERANCE


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("off", [-1, 1])
def test_learned_positions_off_by_one_are_seen(name: str, off: int, error_of: Callable, runner: Callable) -> None:
    table = runner(name)._runner._model.embeddings.position_embeddings
    hook = table.register_forward_pre_hook(lambda _, arguments: ((arguments[0] + off).clamp(min=0),))
    try:
        assert error_of(name) > TOLERANCE
    finally:
        hook.remove()
