"""The loop: a transformer's layers over packed sequences, without the overhead of model classes.

It takes embeddings and rotary angles from the model's own modules, and the layers' weights by the record
of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from sie_core.contracts import preemption_point
from sie_pytorch.forward.loop.entry import Angles, EncoderEntry
from sie_pytorch.forward.loop.layer import LoopLayer, LoopParts, LoraDelta, Norm
from sie_pytorch.forward.loop.linear import require_prepacking
from sie_pytorch.forward.loop.parts import PrepackedParts
from sie_pytorch.forward.loop.stack import LayerStack
from sie_pytorch.forward.lora.low_rank import joined_part
from sie_pytorch.forward.protocol import Batch, LowRank, RunnerContext, RunnerUnfitError, weight_bytes
from sie_pytorch.forward.transfers import Transfers


class LayerLoop:
    """Runs the layers of a described model with the given parts; the weights are taken once, at load."""

    def __init__(self, context: RunnerContext, parts: LoopParts) -> None:
        """Take the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model does not match its record, or needs something that the parts do not compute.
        """
        model = context.model
        self._parts = parts
        try:
            self._stack = stack = LayerStack(model, context.layers, context.features)
            norms = list(stack.norms())
            weights = sum(each.numel() for layer in stack.modules for each in layer.parameters())
            first = norms[0].before
            self._first_norm = None if first is None else Norm(stack, first, context.dtype)
            for name, part in model.named_children():
                if name != stack.row.layers.partition(".")[0]:
                    context.cast(part)
            self._entry = EncoderEntry(model, stack.row)
            self.linear_shapes = {**self._entry.linear_shapes, **stack.linear_shapes()}
            self._layers: list[LoopLayer] = []
            for layer, around in zip(stack.modules, norms, strict=True):
                self._layers.append(LoopLayer(stack, layer, around, context.dtype, parts))
                context.mapped.release(layer.parameters())
        except AttributeError as error:
            raise RunnerUnfitError(f"its layers are not those of its record: {error}") from error
        self._angles_of = self._entry.angles_of(stack.kinds())
        # Taken, a weight is as large as before.
        self.memory_bytes = weight_bytes(self._entry.embeddings) + weights * context.dtype.itemsize

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        layout = self._parts.lay_out(batch)
        return self._run(batch, layout, preemption_point())

    def _run(self, batch: Batch, layout: Any, point: Callable[[], None] | None = None) -> torch.Tensor:
        """Embed the tokens and run every layer; `point` is called between layers."""
        total, parts, stack = len(batch.ids), self._parts, self._stack
        states, angles = self._embed(batch)
        beyond = parts.row_count(total) - total
        states = F.pad(states, (0, 0, 0, beyond)) if beyond else states
        inputs = states if self._first_norm is None else self._first_norm(states)
        rotations = [parts.rotation(stack, each) for each in angles]
        windows = stack.windows()
        lora: LoraDelta = _nothing
        for number, layer in enumerate(self._layers):
            if number and point is not None:
                point()
            if batch.low_rank is not None:
                lora = self._lora_delta(batch.low_rank, number)
            rotation = rotations[self._angles_of[number]] if rotations else None
            states, inputs = layer(states, inputs, total, layout, rotation, windows[number], lora)
        return inputs[:total] if beyond else inputs

    def _embed(self, batch: Batch) -> tuple[torch.Tensor, list[Angles]]:
        """Compute the input of the first layer, and the rotary angles."""
        return self._entry(batch)

    def _lora_delta(self, low_rank: LowRank, number: int) -> LoraDelta:
        """Return the LoRA delta of a layer."""
        return partial(joined_part, low_rank, f"{self._stack.row.layers}.{number}", self.linear_shapes)


class EncoderLoop(LayerLoop):
    """Runs the layers on a CPU over weights packed at load."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model does not match its record, or PyTorch lacks the operators.
        """
        require_prepacking()
        eager = context.attention_backend == "eager"
        super().__init__(context, PrepackedParts(context.dtype, Transfers(context.device), eager))


def _nothing(_states: torch.Tensor, *_names: str) -> torch.Tensor | None:
    """Return None: no LoRA factors, no delta."""
    return None
