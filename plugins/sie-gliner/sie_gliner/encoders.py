"""Puts a faster forward pass in the place of a checkpoint's encoder, where it proves to be the same.

It knows what a gliner model keeps its encoder in, and probe tokens, no text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sie_gliner.deberta import PackedDeberta, UnfitError

CLOSE = 1e-4
"""How far a token's states may be from those of the encoder itself, as a part of their norm."""
LENGTHS = (3, 24, 24)
"""Tokens of the probe sequences; one more is longer than those distances that have a position of their own."""


def replace_encoder(model: Any) -> str | None:
    """Replace the encoder of a gliner model on a CPU; return why not, or None."""
    holder = model.token_rep_layer.bert_layer
    try:
        if holder.config.fuse_layers:
            raise UnfitError("the states of all its layers are wanted")
        holder.model = _proven(holder.model)
    except UnfitError as reason:
        return str(reason)
    return None


def packed_encoder(model: Any) -> PackedDeberta | None:
    """Give the encoder of a gliner model where it takes sequences of any lengths together without padding."""
    encoder = model.token_rep_layer.bert_layer.model
    return encoder if isinstance(encoder, PackedDeberta) else None


def _proven(encoder: nn.Module) -> PackedDeberta:
    with torch.inference_mode():
        packed = PackedDeberta(encoder)
        ids, mask = _probe(encoder.config)
        expected = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        found = packed(input_ids=ids, attention_mask=mask).last_hidden_state
        kept = mask.bool()
        error = (found - expected)[kept].norm(dim=-1) / expected[kept].norm(dim=-1).clamp(min=1e-12)
    if not error.max() <= CLOSE:
        raise UnfitError(f"its states differ from transformers' by {float(error.max()):.1e}")
    with torch.inference_mode():
        packed.take(encoder)
    return packed


def _probe(config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw random ids for the probe sequences, padded, and their mask; always the same."""
    farthest = max(config.position_buckets // 2, 0) + 40
    lengths = torch.tensor([min(length, config.max_position_embeddings) for length in (*LENGTHS, farthest)])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.randint(config.vocab_size, mask.shape, generator=torch.Generator().manual_seed(0))
    return ids * mask, mask.long()
