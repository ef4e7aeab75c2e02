"""LoRA on transformers' own modules: hooks add the LoRA delta to the output of linear layers, for one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial

import torch

from sie_pytorch.forward.protocol import Factors, LowRank, weight_bytes


def shapes_of(model: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """List every plain linear layer of `model`: out and in, by dotted name."""
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def low_rank_part(states: torch.Tensor, factors: Factors) -> torch.Tensor:
    """Compute the LoRA delta of a linear layer for `states`, `[…, in]`: `[…, out]`."""
    lower, upper = (part.to(states.device, states.dtype) for part in (factors.lower, factors.upper))
    return torch.nn.functional.linear(torch.nn.functional.linear(states, lower), upper)


def joined_part(
    low_rank: LowRank | None, path: str, shapes: Mapping[str, tuple[int, int]], states: torch.Tensor, *parts: str
) -> torch.Tensor | None:
    """Compute the LoRA delta of several joined linear layers; None if it is zero.

    Args:
        low_rank: The factors.
        path: Prefix of the names of the layers, without the dot.
        shapes: Out and in of every layer, by its whole name.
        states: The common input, `[rows, in]`.
        parts: The names of the layers, in order.
    """
    names = [f"{path}.{part}" for part in parts]
    if low_rank is None or low_rank.factors.keys().isdisjoint(names):
        return None
    columns = [
        low_rank_part(states, low_rank.factors[name])
        if name in low_rank.factors
        else states.new_zeros(len(states), shapes[name][0])
        for name in names
    ]
    return torch.cat(columns, dim=1)


class DrivenModel:
    """Shared by runners that drive transformers' own model: its size, and the layers that LoRA factors may target."""

    _model: torch.nn.Module

    @property
    def memory_bytes(self) -> int:
        """Bytes of the model."""
        return weight_bytes(self._model)

    @cached_property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Every plain linear layer of the model."""
        return shapes_of(self._model)


@contextmanager
def applied(model: torch.nn.Module, low_rank: LowRank | None) -> Iterator[None]:
    """Have the layers of `model` add the factors inside the block."""
    hooks = []
    try:
        for name, factors in ({} if low_rank is None else low_rank.factors).items():
            hooks.append(model.get_submodule(name).register_forward_hook(partial(_add, factors)))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _add(factors: Factors, _: object, inputs: tuple[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    return result + low_rank_part(inputs[0], factors)
