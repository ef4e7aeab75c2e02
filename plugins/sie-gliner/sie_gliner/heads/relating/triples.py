"""Scores how well a head, a relation and a tail match, by the interactions of knowledge graph embeddings.

Each gives logits `[pairs, labels]` of heads and tails `[pairs, size]` and relation labels `[labels, size]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

FARTHEST = 10.0
"""Upper bound of a distance used as a score: no pair scores below its negative."""
INNER = 2048
FILTERS = 32

Terms = list[tuple[torch.Tensor, torch.Tensor]]


class Product(nn.Module):
    """A sum of products of a head and a tail's interaction with the labels."""

    def __init__(self, terms: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Terms]) -> None:
        super().__init__()
        self._terms = terms

    def forward(self, heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
        """Score pairs; see the module."""
        return torch.stack([pairs @ part.T for pairs, part in self._terms(heads, labels, tails)]).sum(0)


def _dist_mult(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """DistMult (arXiv 1412.6575)."""
    return [(heads * tails, labels)]


def _simple(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """SimplE (arXiv 1802.04868)."""
    (forth, back), (tail_forth, tail_back), (one, other) = (each.chunk(2, dim=-1) for each in (heads, tails, labels))
    return [(forth * tail_back / 2, one), (tail_forth * back / 2, other)]


def _compl_ex(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """ComplEx (arXiv 1606.06357): the real part of a product with the tail's conjugate."""
    (real, imaginary), (tail, tail_imaginary), (one, other) = (each.chunk(2, -1) for each in (heads, tails, labels))
    return [
        (real * tail + imaginary * tail_imaginary, one),
        (real * tail_imaginary - imaginary * tail, other),
    ]


def _quat_e(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """QuatE (arXiv 1904.10281): the quaternion product of head and label, with the tail."""
    (a, b, c, d), (e, f, g, h) = heads.chunk(4, dim=-1), tails.chunk(4, dim=-1)
    made = (
        a * e + b * f + c * g + d * h,
        a * f - b * e + d * g - c * h,
        a * g - c * e - d * f + b * h,
        a * h - d * e + c * f - b * g,
    )
    return list(zip(made, labels.chunk(4, dim=-1), strict=True))


def _hol_e(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """HolE (arXiv 1510.04935): the circular correlation of head and tail, in float32."""
    one, other = (torch.fft.rfft(each.float()) for each in (heads, tails))
    return [(torch.fft.irfft(one.conj() * other, n=heads.shape[-1]), labels.float())]


def _dist_ma(heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> Terms:
    """DistMA: every two of the three."""
    return [(heads + tails, labels), (heads * tails, torch.ones_like(labels))]


class Distance(nn.Module):
    """The negative distance of a moved head and a moved tail; how both move is projected from the label."""

    def __init__(self, size: int, kind: str) -> None:
        super().__init__()
        self._kind = kind
        for part, out in PROJECTIONS.get(kind, {}).items():
            self.add_module(part, nn.Linear(size, out or size))

    def forward(self, heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
        """Score pairs; see the module."""
        made = {part: layer(labels) for part, layer in self.named_children()}
        order = 1 if self._kind == "TransE" else 2
        scores = []
        for number, label in enumerate(labels):
            own = {part.removeprefix("r_to_"): each[number] for part, each in made.items()}
            apart = _apart(self._kind, heads, label, tails, own)
            distance = torch.linalg.vector_norm(apart, ord=order, dim=-1).clamp(max=FARTHEST)
            scores.append(-distance * own["gamma"] if "gamma" in own else -distance)
        return torch.stack(scores, dim=-1)


PROJECTIONS: dict[str, dict[str, int]] = {
    "TransH": {"r_to_rtr": 0, "r_to_w": 0},
    "TransF": {"r_to_rvec": 0, "r_to_alpha": 0, "r_to_beta": 0},
    "PairRE": {"r_to_alpha": 0, "r_to_beta": 0},
    "TripleRE": {"r_to_alpha": 0, "r_to_beta": 0, "r_to_delta": 0, "r_to_gamma": 1},
}
"""Sizes of the projections of a label; 0 stands for the label's own size."""
DISTANCES = ("UM", "SE", "TransE", *PROJECTIONS)


def _apart(
    kind: str, heads: torch.Tensor, label: torch.Tensor, tails: torch.Tensor, own: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Subtract the moved tails from the moved heads, for one label."""
    if kind == "SE":
        return label * (heads - tails)
    if kind == "TransE":
        return heads + label - tails
    if kind == "TransH":
        normal = F.normalize(own["w"], dim=-1)
        flat_heads, flat_tails = (each - (each @ normal)[:, None] * normal for each in (heads, tails))
        return flat_heads + own["rtr"] - flat_tails
    if kind in PROJECTIONS:
        moved = own.get("rvec", own.get("delta", 0))
        return own["alpha"] * heads + moved - own["beta"] * tails
    return heads - tails


class ErMlp(nn.Module):
    """ER-MLP: an MLP over the three side by side."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mlp: Any = nn.Sequential(nn.Linear(3 * size, INNER), nn.ReLU(), nn.Linear(INNER, 1))

    def forward(self, heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
        """Score pairs; see the module."""
        of_head, of_label, of_tail = self.mlp[0].weight.chunk(3, dim=1)
        pairs = heads @ of_head.T + tails @ of_tail.T + self.mlp[0].bias
        return torch.cat([self.mlp[2]((pairs + each).relu_()) for each in labels @ of_label.T], dim=-1)


class ConvKb(nn.Module):
    """ConvKB (arXiv 1712.02121): filters over the three, number by number."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, FILTERS, 1)
        self.fc = nn.Linear(FILTERS * size, 1)

    def forward(self, heads: torch.Tensor, labels: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
        """Score pairs; see the module."""
        triples = (torch.stack((heads, label.expand_as(heads), tails), dim=1) for label in labels)
        return torch.cat([self.fc(self.conv(each).relu_().flatten(1)) for each in triples], dim=-1)


TRIPLES: dict[str, Callable[[int], nn.Module]] = {
    "DistMult": lambda _: Product(_dist_mult),
    "SimplE": lambda _: Product(_simple),
    "ComplEx": lambda _: Product(_compl_ex),
    "QuatE": lambda _: Product(_quat_e),
    "HolE": lambda _: Product(_hol_e),
    "DistMA": lambda _: Product(_dist_ma),
    **{kind: (lambda size, kind=kind: Distance(size, kind)) for kind in DISTANCES},  # type: ignore[misc]
    "ERMLP": ErMlp,
    "ConvKB": ConvKb,
}
"""Keyed by the config's `triples_layer`.

Two of gliner's others are missing: TuckER scores a pair differently in different company, and ConvE cannot be
constructed.
"""
