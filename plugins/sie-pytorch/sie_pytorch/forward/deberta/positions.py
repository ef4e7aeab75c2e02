"""Keys and queries of relative positions, as disentangled attention looks them up (arXiv 2006.03654, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from sie_text.architectures import DEBERTA
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Model

from sie_pytorch.forward.deberta.distances import Distances
from sie_pytorch.forward.lora.low_rank import low_rank_part
from sie_pytorch.forward.protocol import Factors, RunnerUnfitError

OWN = ("attention.self.pos_key_proj", "attention.self.pos_query_proj")
SHARED = (DEBERTA.joined[1], DEBERTA.joined[0])


class RelativePositions:
    """The relative positions of a DeBERTa v2 or v3 that attends to them both ways."""

    def __init__(self, model: Any) -> None:
        """Read the embeddings of positions, and which distances have them.

        Raises:
            RunnerUnfitError: The model is of another kind, or has a convolution in addition to its attention.
        """
        if type(model) is not DebertaV2Model:
            raise RunnerUnfitError(f"a {type(model).__name__} is no DeBERTa v2")
        config, encoder = model.config, model.encoder
        if not config.relative_attention or {*config.pos_att_type} != {"c2p", "p2c"}:
            raise RunnerUnfitError("its attention does not look at relative positions both ways")
        if encoder.conv is not None:
            raise RunnerUnfitError("it has a convolution")
        self.embeddings: torch.Tensor = encoder.get_rel_embedding().detach().float()
        """float32 `[2 * span, hidden]`."""
        self.distances = Distances(len(self.embeddings) // 2, encoder.position_buckets, encoder.max_relative_positions)
        self.names = SHARED if config.share_att_key else OWN
        """The linear layers of each layer that make keys and queries of positions."""
        made = [f"{DEBERTA.layers}.{number}.{name}" for number in range(len(encoder.layer)) for name in self.names]
        weights = {name: model.get_submodule(name).weight for name in made}
        self.linear_shapes = {name: (len(weight), weight.shape[1]) for name, weight in weights.items()}
        """Output and input sizes of all layers, by dotted name below the model."""

    def projected(self, layer: Any, factors: Mapping[str, Factors] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the keys and the queries of positions of one layer, each float32 `[2 * span, hidden]`.

        In float32, whatever the precision of the weights; `factors` of a LoRA adapter are keyed by the names of linear
        layers.
        """
        keys, queries = (self._through(layer.get_submodule(name), (factors or {}).get(name)) for name in self.names)
        return keys, queries

    def _through(self, linear: torch.nn.Linear, factors: Factors | None) -> torch.Tensor:
        made = F.linear(self.embeddings, linear.weight.float(), None if linear.bias is None else linear.bias.float())
        return made if factors is None else made + low_rank_part(self.embeddings, factors)
