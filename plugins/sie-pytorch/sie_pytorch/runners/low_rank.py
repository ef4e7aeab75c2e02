"""LoRA on transformers' own modules: what a linear layer returns gets its low-rank part added, for one forward pass.

It knows linear layers by their names, and no architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from sie_pytorch.runners.protocol import Factors, LowRank


def shapes_of(model: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """List every plain linear layer of `model`: out and in, by dotted name."""
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def low_rank_part(states: torch.Tensor, factors: Factors) -> torch.Tensor:
    """Compute what low-rank factors add to a linear layer's result for `states`, `[…, in]`: `[…, out]`."""
    lower, upper = (part.to(states.device, states.dtype) for part in (factors.lower, factors.upper))
    return torch.nn.functional.linear(torch.nn.functional.linear(states, lower), upper)


@contextmanager
def applied(model: torch.nn.Module, low_rank: LowRank | None) -> Iterator[None]:
    """Have the layers of `model` add the factors for the while."""
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
