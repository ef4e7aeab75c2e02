"""Where an architecture keeps what the kernels need of a layer: the rows of sie-pytorch's loop, and those it lacks.

It knows names only; the proof at load judges whether they mean what they should.
"""

from __future__ import annotations

from dataclasses import dataclass

from sie_pytorch.loop.table import ROWS, LayerRow


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Dotted names of the parts of an encoder layer; `layers` and `final_norm` below the model, the others a layer."""

    layers: str
    joined: tuple[str, ...]
    """Queries, keys and values: three linear layers, or one whose rows are all three."""
    attention_output: str
    attention_norm: str
    """The norm that follows the attention."""
    up: tuple[str, ...]
    """What widens; where gated the gate beside it, or one linear layer with the gate's rows first."""
    down: str
    output_norm: str
    """The norm that follows the layer: its own, or where `final_norm` is given the first of the next layer."""
    gated: bool = False
    final_norm: str | None = None
    """The norm after the last layer; given where norms come before the parts of a layer (pre-norm)."""

    @property
    def linear(self) -> tuple[str, ...]:
        """The linear layers among the parts."""
        return (*self.joined, self.attention_output, *self.up, self.down)


def _of(row: LayerRow) -> KernelRow:
    return KernelRow(
        layers=row.layers,
        joined=(row.query, row.key, row.value),
        attention_output=row.attention_output,
        attention_norm=row.attention_norm,
        up=(row.up, row.gate) if row.gate else (row.up,),
        down=row.down,
        output_norm=row.output_norm,
        gated=row.gate is not None,
    )


MODERN = KernelRow(
    layers="layers",
    joined=("attn.Wqkv",),
    attention_output="attn.Wo",
    attention_norm="mlp_norm",
    up=("mlp.Wi",),
    down="mlp.Wo",
    output_norm="attn_norm",
    gated=True,
    final_norm="final_norm",
)

KERNEL_ROWS = {**{model_type: _of(row) for model_type, row in ROWS.items()}, "modernbert": MODERN}
"""transformers model types and the row that describes their layers."""
