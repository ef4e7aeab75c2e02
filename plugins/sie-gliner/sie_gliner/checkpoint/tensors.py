"""The tensors of a checkpoint's `model.safetensors`, each accounted for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from sie_core.contracts import ModelLoadError
from sie_gliner.checkpoint.config import WEIGHTS_FILE

SHOWN = 4
"""Tensors that a message names."""
BUFFERS = ("position_ids", "token_type_ids")
"""Tensors that transformers once saved and now computes, by the last part of their names."""


class CheckpointTensors:
    """The tensors of a file by name; a tensor that was left out as a duplicate has both names."""

    def __init__(self, folder: Path) -> None:
        """Read the names.

        Raises:
            ModelLoadError: `CORRUPT`: the file cannot be read.
        """
        self._file = folder / WEIGHTS_FILE
        try:
            with safe_open(self._file, framework="pt") as tensors:
                kept = {name: name for name in tensors.keys()}  # noqa: SIM118 - no mapping
                left_out = {name: other for name, other in (tensors.metadata() or {}).items() if other in kept}
        except (SafetensorError, OSError) as error:
            raise ModelLoadError("CORRUPT", f"{WEIGHTS_FILE} cannot be read as safetensors.") from error
        self._kept = {**left_out, **kept}

    def account_for(self, needed: Collection[str], others: tuple[str, ...]) -> None:
        """Check the names in the file against the needed ones.

        Args:
            needed: Names that must exist.
            others: Prefixes of names that other code reads, or that gliner saves and does not use.

        Raises:
            ModelLoadError: `CORRUPT`: a tensor is missing, or one would not be used.
        """
        if missing := sorted(name for name in needed if name not in self._kept):
            raise ModelLoadError("CORRUPT", f"{WEIGHTS_FILE} lacks tensors of the model: {_named(missing)}.")
        over = (name for name in self._kept if name not in needed and not name.endswith(BUFFERS))
        if unknown := sorted(name for name in over if not name.startswith(others)):
            raise ModelLoadError(
                "CORRUPT",
                f"{WEIGHTS_FILE} has tensors that this kind of model does not use: {_named(unknown)}. If they mean "
                "nothing, save the checkpoint anew with gliner: GLiNER.from_pretrained(folder).save_pretrained(other, "
                "safe_serialization=True).",
            )

    def fill(self, module: nn.Module, prefix: str = "") -> nn.Module:
        """Load a module's weights in float32, as views of the file if it stores them so.

        Args:
            module: A module whose tensors are all in the file.
            prefix: What stands before the names there.

        Raises:
            ModelLoadError: `CORRUPT`: a tensor is missing or has another shape.
        """
        wanted = module.state_dict()
        self.account_for([f"{prefix}{name}" for name in wanted], ("",))
        with safe_open(self._file, framework="pt") as tensors:
            found = {name: tensors.get_tensor(self._kept[f"{prefix}{name}"]) for name in wanted}
        if wrong := sorted(name for name, tensor in wanted.items() if tensor.shape != found[name].shape):
            shape, expected = tuple(found[wrong[0]].shape), tuple(wanted[wrong[0]].shape)
            raise ModelLoadError(
                "CORRUPT", f"{WEIGHTS_FILE}: {prefix}{wrong[0]} has the shape {shape}, and by its config {expected}."
            )
        weights = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in found.items()}
        module.load_state_dict(weights, assign=True)
        return module.eval().requires_grad_(False)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
