"""The padded runner: any transformers text encoder through its own forward pass, behind the packed interface."""

from __future__ import annotations

from typing import Any

import torch

from sie_core.contracts import preemption_point
from sie_pytorch.forward.checkpoint.reading import forward_arguments
from sie_pytorch.forward.layout import seen_tokens
from sie_pytorch.forward.lora.low_rank import DrivenModel, applied
from sie_pytorch.forward.padded.batches import PaddedBatch, PaddedBatches
from sie_pytorch.forward.protocol import Batch, RunnerContext
from sie_pytorch.forward.transfers import Transfers


class PaddedRunner(DrivenModel):
    """Sorts sequences by length, runs them in padded batches of similar length, and returns them flat.

    The model derives positions, masks and biases itself, as always.
    """

    def __init__(self, context: RunnerContext, *, exact: bool = False) -> None:
        """Have the model attend by PyTorch's fused function, or by transformers' `eager` code if the backend is
        `eager`.

        Args:
            context: The load.
            exact: Batch only sequences of equal length: for models whose results change with padding.
        """
        self._model = context.cast_model()
        self._exact = exact
        self._transfers = Transfers(context.device)
        self._arguments = forward_arguments(context.model)
        self._pad_token = context.model.config.pad_token_id or 0
        attention = "eager" if context.attention_backend == "eager" else "sdpa"
        if context.model.config._attn_implementation != attention:
            context.model.set_attn_implementation(attention)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`. The model numbers positions itself."""
        padded = PaddedBatches.of(batch.cu_seqlens, self._transfers, exact=self._exact)
        seen = None
        if batch.key_lengths is not None:
            (seen,) = self._transfers.upload([seen_tokens(batch.cu_seqlens, batch.key_lengths).numpy()])
        point = preemption_point()
        states: list[torch.Tensor] = []
        for part in padded.batches:
            if states and point is not None:
                point()  # the model has no factors here, so another run of it may come in between
            with applied(self._model, batch.low_rank):
                states.append(self._run(part, batch, seen))
        return padded.flatten(states)

    def _run(self, part: PaddedBatch, batch: Batch, seen: torch.Tensor | None) -> torch.Tensor:
        """Run one part, padded; of its tokens those are keys that are `seen`, bool `[total_tokens]`; None means all."""
        arguments: dict[str, Any] = {"input_ids": part.pad(batch.ids, self._pad_token)}
        if seen is not None:
            arguments["attention_mask"] = part.pad(seen, False).long()
        elif "attention_mask" in self._arguments:
            arguments["attention_mask"] = part.real.long()
        if batch.types is not None and "token_type_ids" in self._arguments:
            arguments["token_type_ids"] = part.pad(batch.types, 0)
        states: torch.Tensor = self._model(**arguments).last_hidden_state
        return states
