"""Where an architecture keeps the parts of a layer: one row a family of transformers model classes.

It knows names only; what the parts do is the loop's affair, and the proof at load judges both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRow:
    """Dotted names of the parts of a post-norm encoder layer, `layers` below the model, the others below a layer."""

    layers: str
    query: str
    key: str
    value: str
    attention_output: str
    attention_norm: str
    up: str
    down: str
    output_norm: str
    gate: str | None = None
    """The gate's projection where the feed-forward part is gated; its activation is the config's."""

    @property
    def linear(self) -> tuple[str, ...]:
        """The linear layers among the parts."""
        parts = (self.query, self.key, self.value, self.attention_output, self.up, self.down)
        return (*parts, self.gate) if self.gate else parts


BERT = LayerRow(
    layers="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    output_norm="output.LayerNorm",
)

DISTILBERT = LayerRow(
    layers="transformer.layer",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    output_norm="output_layer_norm",
)

ROTARY_GATED = LayerRow(
    layers="layers",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    attention_output="self_attn.o_proj",
    attention_norm="post_attention_layernorm",
    up="mlp.up_proj",
    gate="mlp.gate_proj",
    down="mlp.down_proj",
    output_norm="post_mlp_layernorm",
)

ROWS = {
    "bert": BERT,
    "camembert": BERT,
    "distilbert": DISTILBERT,
    "electra": BERT,
    "ernie": BERT,
    "gte": ROTARY_GATED,
    "nomic_bert": ROTARY_GATED,
    "roberta": BERT,
    "xlm-roberta": BERT,
}
"""transformers model types and the row that describes their layers."""
