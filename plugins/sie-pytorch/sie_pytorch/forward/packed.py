"""The packed runner: transformers' own model classes over concatenated sequences, through their attention interface."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface

from sie_pytorch.forward.checkpoint.positions import position_rule
from sie_pytorch.forward.checkpoint.reading import forward_arguments
from sie_pytorch.forward.layout import AttentionLayout, PackedLayout
from sie_pytorch.forward.lora.low_rank import DrivenModel, applied
from sie_pytorch.forward.protocol import Batch, RunnerContext, RunnerUnfitError
from sie_pytorch.forward.transfers import Transfers

ATTENTION = "sie_packed"
"""The name of the attention function among transformers' own.

No mask function is registered under it, so transformers makes no mask. With a mask function it inspects `position_ids`
to detect packing, a device sync in every decoder pass.
"""

IGNORED = frozenset({"position_ids", "cache_position", "use_cache", "deterministic", "output_attentions", "dropout"})
"""Arguments of attention functions that change nothing in a packed evaluation without a cache."""


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    packed: AttentionLayout | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each sequence of `packed`, in the place of transformers' attention functions.

    Args:
        module: The attention layer; it or its config says whether it is causal, unless `is_causal` does.
        query: `[1, heads, total, head_dim]`.
        key: `[1, key_heads, total, head_dim]`.
        value: `[1, key_heads, total, head_dim]`.
        attention_mask: None: sequences are kept apart by `packed`.
        packed: The layout of the sequences and the attention within them.
        scaling: Factor of the scores.
        sliding_window: Token i sees token j only if |i - j| is smaller.
        is_causal: Overrides the module.
        others: Refused if any would change the result.

    Returns:
        `[1, total, heads, head_dim]`, and None in place of the weights.

    Raises:
        RunnerUnfitError: The model asks for another kind of attention.
    """
    if packed is None:
        raise RunnerUnfitError("the model does not hand keyword arguments on to its attention")
    if attention_mask is not None:
        raise RunnerUnfitError("the model makes an attention mask of its own")
    unknown = sorted(name for name, given in others.items() if given is not None and name not in IGNORED)
    if unknown:
        raise RunnerUnfitError(f"its attention takes {', '.join(unknown)}, which packed attention does not")
    if key.shape[2] != query.shape[2]:
        raise RunnerUnfitError("its attention looks at other states than its own (cross-attention or a cache)")
    causal = is_causal if is_causal is not None else bool(getattr(module, "is_causal", True))
    causal = causal and bool(getattr(getattr(module, "config", None), "is_causal", True))
    return packed.attend(query, key, value, causal=causal, window=sliding_window, scale=scaling), None


AttentionInterface.register(ATTENTION, packed_attention)


LayOut = Callable[[Batch], AttentionLayout]
"""Maps a batch to the attention within its sequences."""


def lay_out_runs(batch: Batch, transfers: Transfers, *, eager: bool) -> PackedLayout:
    """Lay a batch out for PyTorch's own attention."""
    return PackedLayout.of(batch.cu_seqlens, batch.key_lengths, transfers, eager=eager)


class PackedRunner(DrivenModel):
    """Drives a transformers model over sequences that are concatenated in one row."""

    def __init__(self, context: RunnerContext, lay_out: LayOut | None = None) -> None:
        """Switch the model over to packed attention.

        Args:
            context: The load.
            lay_out: Called once a pass; None attends by PyTorch's own function, over runs of equal length.

        Raises:
            RunnerUnfitError: Its class takes no explicit positions.
        """
        model = context.cast_model()
        self._arguments = forward_arguments(model)
        if "position_ids" not in self._arguments:
            raise RunnerUnfitError(f"{type(model).__name__} takes no position_ids")
        self._positions = position_rule(model)
        self._layers = int(model.config.num_hidden_layers)
        eager = context.attention_backend == "eager"
        self._lay_out = lay_out or partial(lay_out_runs, transfers=Transfers(context.device), eager=eager)
        self._model = model
        model.set_attn_implementation(ATTENTION)
        if model.config._attn_implementation != ATTENTION:
            raise RunnerUnfitError(f"{type(model).__name__} does not let its attention be exchanged")

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`.

        Raises:
            RunnerUnfitError: The model did not attend exactly once a layer through the attention function.
        """
        layout = self._lay_out(batch)
        positions = self._positions(batch.ids, batch.positions)
        arguments = {"input_ids": batch.ids[None], "position_ids": positions[None], "packed": layout}
        if batch.types is not None and "token_type_ids" in self._arguments:
            arguments["token_type_ids"] = batch.types[None]
        with applied(self._model, batch.low_rank):
            states: torch.Tensor = self._model(**arguments).last_hidden_state[0]
        if layout.calls != self._layers:
            raise RunnerUnfitError(f"its {self._layers} layers called the attention function {layout.calls} times")
        return states
