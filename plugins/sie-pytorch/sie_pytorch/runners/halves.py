"""Checkpoints in half precision on a CPU that computes in float32: exact, without a float32 copy of all weights.

What is large stays a view of the file: the linear layers until a runner takes them, the table of token embeddings for
good, as its rows are widened one by one. It knows layers and tensors, no architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from sie_pytorch.runners.mapping import MappedFiles

HALVES = {"F16": torch.float16, "BF16": torch.bfloat16}
"""The half precisions, as safetensors call them."""
INTEGERS = ("I", "U", "BOOL")
"""How safetensors' names of all other kinds of numbers begin."""
DTYPE_OF: Any = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class WideTable(nn.Embedding):
    """An embedding that keeps the table of `table` as it is; the rows looked up leave it in `dtype`."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, table.padding_idx, _weight=table.weight.data)
        self.requires_grad_(False)
        self.dtype = torch.float32

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its parent's name
        """Look ids up."""
        return super().forward(input).to(self.dtype)


def half_of(folder: Path) -> torch.dtype | None:
    """Give the half precision that all weights of a checkpoint have; None where that is not so."""
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
    """Bring the weights of `model` into float32, those of plain linear layers and the tokens' table apart.

    In `Widened` it then computes what it would in float32 altogether. Returns False, and changes nothing, where it does
    not: its class derived numbers in half precision (Gemma: what embeddings are multiplied by), or names no embeddings.
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


class Widened(TorchFunctionMode):
    """While it lasts tensors in half precision enter every operation as float32, and say that they are float32.

    The pages of a linear layer's weight go back once it was multiplied by: a model is never in memory for a proof.
    """

    def __init__(self, model: nn.Module, mapped: MappedFiles) -> None:
        super().__init__()
        self._mapped = mapped
        self._widens = any(weight.dtype in HALVES.values() for weight in model.parameters())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func` with its arguments widened; a table that rows are looked up in stays as it is."""
        result = self._run(func, args, kwargs or {})
        if func is F.linear:
            self._mapped.release(args[1:2])
        return result

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._widens and func == DTYPE_OF:
            return torch.float32 if args[0].dtype in HALVES.values() else args[0].dtype
        if self._widens and func is not F.embedding and getattr(func, "__name__", None) != "__get__":
            args, kwargs = tree_map_only(torch.Tensor, _widen, (args, kwargs))
        return func(*args, **kwargs)


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in HALVES.values() else tensor
