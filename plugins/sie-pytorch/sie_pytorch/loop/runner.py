"""The encoder loop itself: post-norm transformer layers over packed sequences, without the overhead of model classes.

It takes embeddings and rotary angles from the model's own modules and the layers' weights by the table; it knows no
architecture by name.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from sie_pytorch.loop.entry import Angles, EncoderEntry, activation_of, linear_shapes, row_of
from sie_pytorch.loop.linear import PackedLinear, require_prepacking, row_count
from sie_pytorch.loop.table import ROWS, LayerRow
from sie_pytorch.runners.layout import PackedLayout
from sie_pytorch.runners.low_rank import low_rank_part
from sie_pytorch.runners.protocol import LowRank, RunnerContext, RunnerUnfitError, weight_bytes
from sie_pytorch.transfers import Transfers


class _Norm:
    """A LayerNorm's numbers, called without a module's overhead."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        if not isinstance(module, torch.nn.LayerNorm):
            raise RunnerUnfitError(f"it normalises with {type(module).__name__}, not LayerNorm")
        weight, bias = (each if each is None else each.detach().to(dtype) for each in (module.weight, module.bias))
        self._arguments = (module.normalized_shape, weight, bias, module.eps)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        shape, weight, bias, eps = self._arguments
        return F.layer_norm(states, shape, weight, bias, eps)


Added = Callable[..., torch.Tensor | None]
"""From states and the names of the layers they enter to what low-rank factors add to the joined result, or None."""


def _nothing(*_: object) -> None:
    """Add nothing."""


class _Layer:
    """One layer: attention and feed-forward part, each added to its input and normalised after."""

    def __init__(self, layer: torch.nn.Module, row: LayerRow, heads: int, activation: str, dtype: torch.dtype) -> None:
        def linear(name: str) -> torch.nn.Linear:
            module = layer.get_submodule(name)
            if type(module) is not torch.nn.Linear:
                raise RunnerUnfitError(f"its {name} is a {type(module).__name__}, not a plain linear layer")
            return module

        query, key, value = linear(row.query), linear(row.key), linear(row.value)
        if not query.weight.shape == key.weight.shape == value.weight.shape:
            raise RunnerUnfitError("its queries, keys and values differ in width")
        self._row = row
        self._heads = heads
        self._head_dim = query.out_features // heads
        self._qkv = PackedLinear((query, key, value), dtype)
        self._attention_output = PackedLinear((linear(row.attention_output),), dtype)
        self._attention_norm = _Norm(layer.get_submodule(row.attention_norm), dtype)
        self._up = PackedLinear((linear(row.up),), dtype, None if row.gate else activation)
        self._gate = PackedLinear((linear(row.gate),), dtype, activation) if row.gate else None
        self._down = PackedLinear((linear(row.down),), dtype)
        self._output_norm = _Norm(layer.get_submodule(row.output_norm), dtype)

    def __call__(
        self, states: torch.Tensor, total: int, layout: PackedLayout, angles: Angles | None, added: Added
    ) -> torch.Tensor:
        """Run `[rows, hidden]`, of which the first `total` are tokens and the others are computed along, unread."""
        row = self._row
        attended = self._attend(states, total, layout, angles, added(states, row.query, row.key, row.value))
        states = self._attention_norm(
            self._attention_output.add(attended, states, added(attended, row.attention_output))
        )
        inner = self._up(states, added(states, row.up))
        if self._gate is not None and row.gate is not None:
            inner = inner.mul_(self._gate(states, added(states, row.gate)))
        return self._output_norm(self._down.add(inner, states, added(inner, row.down)))

    def _attend(
        self,
        states: torch.Tensor,
        total: int,
        layout: PackedLayout,
        angles: Angles | None,
        added: torch.Tensor | None,
    ) -> torch.Tensor:
        rows = states.shape[0]
        joined = self._qkv(states, added)[:total].view(total, 3, self._heads, self._head_dim).permute(1, 2, 0, 3)
        if angles is not None:
            joined[:2] = _rotate(joined[:2], angles)
        query, key, value = joined.unsqueeze(1).unbind()
        attended = layout.attend(query, key, value, causal=False, window=None, scale=None)
        return F.pad(attended.view(total, self._heads * self._head_dim), (0, 0, 0, rows - total))


def _rotate(states: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Turn `[…, total_tokens, head_dim]` by rotary position embeddings, halves paired (arXiv 2104.09864)."""
    cosine, sine = angles
    first, second = states.chunk(2, dim=-1)
    return states * cosine + torch.cat((-second, first), dim=-1) * sine


def _taken(layer: torch.nn.Module, row: LayerRow, context: RunnerContext) -> _Layer:
    """Pack one layer, and give back what its weights took."""
    config = context.model.config
    packed = _Layer(layer, row, config.num_attention_heads, activation_of(config), context.dtype)
    context.mapped.release(layer.parameters())
    return packed


class EncoderLoop:
    """Runs the layers of a BERT-like encoder on a CPU over weights packed once, at load."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model is not what its table row says, or PyTorch lacks the operators.
        """
        require_prepacking()
        model, config = context.model, context.model.config
        row = row_of(config, ROWS)
        try:
            layers = model.get_submodule(row.layers)
            for name, part in model.named_children():
                if name != row.layers.partition(".")[0]:
                    context.cast(part)
            self._entry = EncoderEntry(model)
            self._path = row.layers
            self.linear_shapes = {**self._entry.linear_shapes, **linear_shapes(model, row.layers, row.linear)}
            self._layers = [_taken(layer, row, context) for layer in layers]
        except AttributeError as error:
            raise RunnerUnfitError(f"its layers are not those of its row: {error}") from error
        self._eager = context.attention_backend == "eager"
        self._transfers = Transfers(context.device)
        weights = sum(weight.numel() for weight in layers.parameters()) * context.dtype.itemsize
        self.memory_bytes = weight_bytes(self._entry.embeddings) + weights  # packed, a weight is as large as before

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`."""
        total = len(ids)
        states, angles = self._entry(ids, positions, segment_ids, low_rank)
        turns = angles[0] if angles else None
        states = F.pad(states, (0, 0, 0, row_count(total) - total))
        layout = PackedLayout.of(cu_seqlens, key_lengths, self._transfers, eager=self._eager)
        for number, layer in enumerate(self._layers):
            added = _nothing if low_rank is None else self._adder(low_rank, number)
            states = layer(states, total, layout, turns, added)
        return states[:total]

    def _adder(self, low_rank: LowRank, number: int) -> Added:
        """Make what adds the factors of one layer."""

        def add(states: torch.Tensor, *parts: str) -> torch.Tensor | None:
            names = [f"{self._path}.{number}.{part}" for part in parts]
            if low_rank.factors.keys().isdisjoint(names):
                return None
            columns = [
                low_rank_part(states, low_rank.factors[name])
                if name in low_rank.factors
                else states.new_zeros(len(states), self.linear_shapes[name][0])
                for name in names
            ]
            return torch.cat(columns, dim=1)

        return add
