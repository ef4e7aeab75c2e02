"""The layers of GLiNER's heads, their parts named as in a checkpoint."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def mlp(size: int, out: int) -> nn.Sequential:
    """Two linear layers, the first four times as wide as the result; dropout stands between them in training."""
    return nn.Sequential(nn.Linear(size, 4 * out), nn.ReLU(), nn.Identity(), nn.Linear(4 * out, out))


def linear_of(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    """Make a linear layer of a part of another's weight."""
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


class WordLstm(nn.Module):
    """An LSTM over the words of each text, both ways."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size // 2, layers, batch_first=True, bidirectional=True)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Run `[rows, words, size]`; `lengths` (on the CPU) counts the words of each row, the others become 0."""
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        return states


class Attention(nn.Module):
    """Attention heads without an output projection."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.query_layer, self.key_layer, self.value_layer = (nn.Linear(size, size) for _ in range(3))
        self._heads = heads

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attend from `[rows, queries, size]` to `[rows, keys, size]` under `mask` `[rows, queries, keys]`."""
        projected = (self.query_layer(query), self.key_layer(key), self.value_layer(value))
        queries, keys, values = (states.unflatten(-1, (self._heads, -1)).transpose(1, 2) for states in projected)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None])
        return attended.transpose(1, 2).flatten(2)


class SelfAttentionBlock(nn.Module):
    """Attention within a sequence, normalised before and after."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.self_attn = Attention(size, heads)
        self.pre_norm, self.post_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(size, size) for _ in range(3))

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Run `[rows, tokens, size]`."""
        states = self.pre_norm(states)
        attended = self.self_attn(self.q_proj(states), self.k_proj(states), self.v_proj(states), mask)
        result: torch.Tensor = self.post_norm(states + attended)
        return result


class CrossAttentionBlock(nn.Module):
    """Attention from one sequence to another, normalised before and after."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.cross_attn = Attention(size, heads)
        self.pre_norm, self.post_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.v_proj = nn.Linear(size, size)

    def forward(self, states: torch.Tensor, others: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Run `[rows, tokens, size]`, attending to `[rows, others, size]`."""
        states = self.pre_norm(states)
        result: torch.Tensor = self.post_norm(states + self.cross_attn(states, others, self.v_proj(others), mask))
        return result


class CrossFuser(nn.Module):
    """Lets labels and words attend to each other, by a schema such as `l2l-l2t-t2l`: from which to which."""

    def __init__(self, size: int, heads: int, layers: int, schema: tuple[str, ...]) -> None:
        super().__init__()
        kinds = {"l2l": SelfAttentionBlock, "t2t": SelfAttentionBlock}
        self.layers = nn.ModuleList(
            nn.ModuleList(kinds.get(kind, CrossAttentionBlock)(size, heads) for kind in schema) for _ in range(layers)
        )
        self._schema = schema

    def forward(
        self, words: torch.Tensor, labels: torch.Tensor, are_words: torch.Tensor, are_labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run `[rows, words, size]` and `[rows, labels, size]`; the masks `[rows, …]` mark the existing words and
        labels.
        """
        states = {"t": words, "l": labels}
        masks = {"t": are_words, "l": are_labels}
        for blocks in self.layers:
            assert isinstance(blocks, nn.ModuleList)
            for kind, block in zip(self._schema, blocks, strict=True):
                source, target = kind[0], kind[-1]
                mask = masks[source][:, :, None] & masks[target][:, None, :]
                others = () if source == target else (states[target],)
                states[source] = block(states[source], *others, mask)
        return states["t"] * are_words[..., None], states["l"] * are_labels[..., None]
