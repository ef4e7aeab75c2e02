"""An encoder that returns a weighted sum of the states of all its layers; the weights depend on the text."""

from __future__ import annotations

from typing import Any

import torch
from sie_pytorch.forward import (
    Batch,
    EncoderPart,
    PaddedBatches,
    RunnerContext,
    RunnerInfo,
    Transfers,
    load_model,
    position_limit,
    weight_bytes,
)
from torch import nn

from sie_core.contracts import LoadContext, ModelCard, OutOfDeviceMemory, device_errors
from sie_gliner.checkpoint.tensors import CheckpointTensors

NAME = "padded (equal lengths)"
WHY = "the checkpoint sums up the states of all layers, and a runner gives those of the last"


class LayersFuser(nn.Module):
    """Weighs layers by squeeze and excitation (arXiv 1709.01507)."""

    def __init__(self, layers: int, size: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(size, 1)
        self.W1, self.W2 = nn.Linear(layers, layers // 2), nn.Linear(layers // 2, layers)
        self.output_projection = nn.Linear(size, size)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Sum up `[rows, layers, tokens, size]` over the layers; every token of a row counts."""
        squeezed = self.squeeze(states)[..., 0].mean(dim=2)
        weights = torch.sigmoid(self.W2(self.W1(squeezed).relu()))
        result: torch.Tensor = self.output_projection((states * weights[..., None, None]).sum(dim=1))
        return result


class FusedLayers:
    """Runs such an encoder over sequences of equal length, by transformers' own class."""

    def __init__(
        self, context: LoadContext, card: ModelCard, part: EncoderPart, tensors: CheckpointTensors, prefix: str
    ) -> None:
        """Load the encoder, and the layer that sums up its layers.

        Raises:
            ModelLoadError: A tensor is missing or misshaped.
            OutOfDeviceMemory: The device has no room.
        """
        device = torch.device(str(context.device))
        self._transfers = Transfers(device)
        dtype = torch.float32  # no check compares its half precision with float32
        try:
            with device_errors(), torch.inference_mode():
                loaded = load_model(card.path, dtype, device, part, card.records)
                backend, threads = context.attention_backend, context.threads
                self._model: Any = RunnerContext(
                    loaded, card.path, card, device=device, dtype=dtype, attention_backend=backend, threads=threads
                ).cast_model()
                size, layers = loaded.config.hidden_size, loaded.config.num_hidden_layers
                with torch.device("meta"):
                    fuser = LayersFuser(layers, size)
                self._fuser = tensors.fill(fuser, prefix).to(device, dtype)
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(f"{context.device} has no room for the weights") from error
        half = "float32: a fused encoder is never served in half precision"
        asked = {} if context.precision == "float32" else {"precision": half}
        self.info = RunnerInfo(
            name=NAME,
            reason=WHY,
            precision=str(dtype).removeprefix("torch."),
            model_type=loaded.config.model_type,
            hidden_size=size,
            attention_layers=layers,
            max_sequence_length=position_limit(loaded),
            memory_bytes=weight_bytes(loaded) + weight_bytes(self._fuser),
            notes={"runner": NAME, "runner_reason": WHY, **asked},
        )

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the states; see `sie_pytorch.forward.Runner.forward`."""
        padded = PaddedBatches.of(batch.cu_seqlens, self._transfers, exact=True)
        return padded.flatten([self._run(batch.ids[part.rows]) for part in padded.batches])

    def _run(self, ids: torch.Tensor) -> torch.Tensor:
        output = self._model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        states: torch.Tensor = self._fuser(torch.stack(output.hidden_states[1:], dim=1))
        return states
