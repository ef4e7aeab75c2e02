"""Scores how likely entities of a text belong together: a number between 0 and 1 for each ordered pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

HEADS = 8


class DotAdjacency(nn.Module):
    """The sigmoid of the dot product."""

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """Map `[rows, entities, size]` to `[rows, entities, entities]`; `are_there` masks the entities."""
        return _dot(entities)


class MlpAdjacency(nn.Module):
    """An MLP over the two side by side."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mlp: Any = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU(), nn.Linear(size, 1))

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """See `DotAdjacency.forward`."""
        joined = self.mlp[0]
        of_head, of_tail = joined.weight.chunk(2, dim=1)
        heads, tails = entities @ of_head.T + joined.bias, entities @ of_tail.T
        # Row by row: all pairs of all rows at once would take memory by the gigabyte.
        scored = [self.mlp[2]((head[:, None] + tail).relu_()) for head, tail in zip(heads, tails, strict=True)]
        return torch.sigmoid(torch.stack(scored)[..., 0])


class AttentionAdjacency(nn.Module):
    """The weights of attention, their mean over heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(size, HEADS, batch_first=True)

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """See `DotAdjacency.forward`."""
        _, weights = self.attn(entities, entities, entities, key_padding_mask=~are_there, need_weights=True)
        found: torch.Tensor = weights
        return found


class BilinearAdjacency(nn.Module):
    """The dot product of a projection."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """See `DotAdjacency.forward`."""
        return _dot(self.proj(entities))


class GraphAdjacency(nn.Module):
    """The dot product after one layer of a graph convolution (arXiv 1609.02907) over the entities' dot products."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gcn = nn.ModuleDict({"linear": nn.Linear(size, size)})
        self.proj = nn.Linear(size, size)

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """See `DotAdjacency.forward`."""
        there = are_there.to(entities.dtype)
        near = _dot(entities) * there[:, :, None] * there[:, None] + torch.diag_embed(there)
        scale = near.sum(dim=-1).clamp(min=1e-6).rsqrt()
        spread = (near * scale[:, :, None] * scale[:, None]) @ entities
        return _dot(self.proj(self.gcn["linear"](spread).relu()))


class GraphAttentionAdjacency(nn.Module):
    """The dot product after attention among the entities."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(size, HEADS, batch_first=True)
        self.linear = nn.Linear(size, size)

    def forward(self, entities: torch.Tensor, are_there: torch.Tensor) -> torch.Tensor:
        """See `DotAdjacency.forward`."""
        attended, _ = self.attn(entities, entities, entities, key_padding_mask=~are_there, need_weights=False)
        return _dot(self.linear(attended))


def _dot(states: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(states @ states.transpose(1, 2))


ADJACENCIES: dict[str, Callable[[int], nn.Module]] = {
    "dot": lambda _: DotAdjacency(),
    "mlp": MlpAdjacency,
    "attention": AttentionAdjacency,
    "attn": AttentionAdjacency,
    "bilinear": BilinearAdjacency,
    "gcn": GraphAdjacency,
    "gat": GraphAttentionAdjacency,
}
"""Keyed by the config's `relations_layer`, in any case."""
