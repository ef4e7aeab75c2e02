"""Runs half-precision checkpoints on a CPU that computes in float32: exact, without a float32 copy of all weights.

Large weights stay views of the file. Linear layers stay views until a runner takes them. The table of token embeddings
stays a view, and its rows are upcast when looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from sie_pytorch.forward.checkpoint.mapping import MappedFiles

HALVES = {"F16": torch.float16, "BF16": torch.bfloat16}
"""The half precisions, as safetensors call them."""
INTEGERS = ("I", "U", "BOOL")
"""Prefixes of safetensors' names of all other kinds of numbers."""


class WideTable(nn.Embedding):
    """An embedding over the weight of `table`, in its precision; rows are cast to `dtype` as they are looked up."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, table.padding_idx, _weight=table.weight.data)
        self.requires_grad_(False)
        self.dtype = torch.float32

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its parent's name
        """Look ids up."""
        return super().forward(input).to(self.dtype)


def half_of(folder: Path) -> torch.dtype | None:
    """Return the half precision of all weights of a checkpoint; None if they have no common one."""
    kinds = set()
    try:
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="pt") as tensors:
                kinds |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError):
        return None
    floats = {kind for kind in kinds if not kind.startswith(INTEGERS)}
    return HALVES.get(floats.pop()) if len(floats) == 1 else None


def widen_small_weights(model: Any) -> bool:
    """Upcast the weights of `model` to float32, except those of plain linear layers and the tokens' table.

    Inside `widened`, the model then computes the same as if entirely in float32. Returns False, and changes nothing, if
    it would not: its class derived numbers in half precision (Gemma: the factor of embeddings), or names no embeddings.
    """
    loaded = model.state_dict(keep_vars=True)
    if any(buffer.dtype in HALVES.values() for name, buffer in model.named_buffers() if name not in loaded):
        return False
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return False
    if type(table) is nn.Embedding:
        model.set_input_embeddings(WideTable(table))
    large = {id(module.weight) for module in model.modules() if type(module) in (nn.Linear, WideTable)}
    for held in model.state_dict(keep_vars=True).values():
        if held.is_floating_point() and id(held) not in large:
            held.data = held.data.float()
    return True


@contextmanager
def widened(model: nn.Module, mapped: MappedFiles) -> Iterator[None]:
    """Upcast the half-precision weights of `model` to float32 inside the block, one layer at a time.

    A layer's weights are upcast when it is called and are views of the files again once it returned. Their pages are
    then released, whatever their precision: the model is never in memory as a whole. Weights outside of layers are
    upcast for the whole block.
    """
    layers = _layers(model)
    within = {id(weight) for layer in layers for weight in layer.parameters()}
    with ExitStack() as stack:
        for layer in layers:
            upcast = _Upcast(layer.parameters(), mapped)
            stack.callback(layer.register_forward_pre_hook(upcast.begin).remove)
            stack.callback(layer.register_forward_hook(upcast.end, always_call=True).remove)
        tables = {id(module.weight) for module in model.modules() if isinstance(module, WideTable)}
        outside = _Upcast((each for each in model.parameters() if id(each) not in within | tables), mapped)
        outside.begin()
        stack.callback(outside.end)
        yield


def _layers(model: nn.Module) -> list[nn.Module]:
    """List the members of module lists, of nested lists the outermost."""
    found: list[nn.Module] = []
    for child in model.children():
        found += list(child) if isinstance(child, nn.ModuleList) else _layers(child)
    return found


class _Upcast:
    """Weights that are float32 between `begin` and `end`, and their earlier values."""

    def __init__(self, weights: Iterable[nn.Parameter], mapped: MappedFiles) -> None:
        self._weights = list(weights)
        self._mapped = mapped
        self._before: list[torch.Tensor] = []

    def begin(self, *_: Any) -> None:
        self._before = [weight.data for weight in self._weights]
        for weight in self._weights:
            if weight.dtype in HALVES.values():
                weight.data = weight.data.float()

    def end(self, *_: Any) -> None:
        for weight, before in zip(self._weights, self._before, strict=True):
            weight.data = before
        self._mapped.release(self._before)
