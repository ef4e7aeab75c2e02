"""A plain forward pass in NumPy, with sums in float64: what the kernels have to compute, spelled out.

It runs one sequence after another, and reads one layer's weights at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sie_text.architectures import PreNorm
from sie_text.labels import ACTIVATIONS, softmax

from sie_cpu.checkpoint.model import Described
from sie_cpu.checkpoint.settings import Settings
from sie_cpu.forward.distances import RelativePositions
from sie_cpu.forward.embeddings import TokenEntry
from sie_cpu.packing import Dense, LayerParts, NormNumbers

Wide = NDArray[np.float64]


def reference_states(
    model: Described,
    entry: TokenEntry,
    relative: RelativePositions | None,
    biases: NDArray[np.float32] | None,
    ids: NDArray[np.int64],
    positions: NDArray[np.int64],
    types: NDArray[np.int64] | None,
    offsets: NDArray[np.int64],
    windows: Sequence[int | None],
    keys: NDArray[np.int64] | None = None,
) -> Wide:
    """Compute the last hidden states of a packed batch.

    Args:
        model: Its settings and tensors.
        entry: Its embeddings.
        relative: Its relative positions, if attention is disentangled.
        biases: Those of attention scores by distance, if it has some: see `biases_of`.
        ids: int64 `[tokens]`.
        positions: int64 `[tokens]`: the place of each token in its sequence.
        types: int64 `[tokens]`; None if all are 0.
        offsets: Start of each sequence, and the end of the last one, int64 `[sequences + 1]`.
        windows: The attention window of each layer.
        keys: Number of key tokens of each sequence; None for all.

    Returns:
        float64 `[tokens, hidden]`.
    """
    settings = model.settings
    numbered = None if entry.positions is None else entry.position_ids(ids, positions)
    states = entry.embedded(ids, None if entry.types is None else types, numbered).astype(np.float64)
    angles = [tuple(part.astype(np.float64) for part in kind) for kind in entry.angles(positions)]
    spans = list(pairwise(offsets.tolist()))
    seen = [stop - start for start, stop in spans] if keys is None else keys.tolist()
    before = model.before()
    inputs = states if before is None else _norm(states, before, settings)
    for number, place in enumerate(settings.angles_of()):
        parts = model.layer(number)
        joined = np.concatenate([_through(dense, inputs) for dense in parts.joined], axis=1)
        tables = None if relative is None else relative.projected(number)
        attended = np.concatenate(
            [
                _attended(
                    joined[start:stop],
                    parts,
                    settings,
                    [part[start:stop] for part in angles[place]] if angles else None,
                    None if relative is None or tables is None else (*tables, relative.distances.rows(stop - start)),
                    None if biases is None else _biases(biases, stop - start),
                    _visible(stop - start, count, settings.causal, windows[number]),
                )
                for (start, stop), count in zip(spans, seen, strict=True)
            ]
        )
        states, inputs = _sum(
            states, _through(parts.attention_output, attended), parts.post_attention, parts.attention, settings
        )
        inner = _through(parts.down, _inner(inputs, parts, settings))
        states, inputs = _sum(states, inner, parts.post_mlp, parts.output, settings)
        model.release(number)
    return inputs


def _through(dense: Dense, values: Wide) -> Wide:
    made: Wide = values @ dense.weight.all().astype(np.float64).T
    return made if dense.bias is None else made + dense.bias


def _norm(values: Wide, norm: NormNumbers, settings: Settings, *, of_head: bool = False) -> Wide:
    if settings.row.norm == "layer" and not of_head:
        values = values - values.mean(-1, keepdims=True)
    scaled: Wide = values / np.sqrt((values**2).mean(-1, keepdims=True) + norm.epsilon) * norm.weight
    return scaled if norm.bias is None else scaled + norm.bias


def _sum(states: Wide, made: Wide, own: NormNumbers | None, norm: NormNumbers, settings: Settings) -> tuple[Wide, Wide]:
    """Add a part's result to the states; return those, and their norm: the input of the next part."""
    total = states + (made if own is None else _norm(made, own, settings))
    inputs = _norm(total, norm, settings)
    return (total if isinstance(settings.row.norms, PreNorm) else inputs), inputs


def _inner(inputs: Wide, parts: LayerParts, settings: Settings) -> Wide:
    widened = [_through(dense, inputs) for dense in parts.up]
    if not settings.row.gated:
        return _activated(widened[0], settings.activation)
    if len(widened) == 1:
        gate, up = np.split(widened[0], 2, axis=1)
    else:
        up, gate = widened
    return up * _activated(gate, settings.activation)


def _activated(values: Wide, name: str) -> Wide:
    if name in {"gelu_new", "gelu_pytorch_tanh"}:
        smoothed: Wide = 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))
        return smoothed
    known = {"gelu": "GELU", "relu": "ReLU", "silu": "SiLU"}
    activated: Wide = ACTIVATIONS[known[name]](values).astype(np.float64)
    return activated


def _visible(length: int, keys: int, causal: bool, window: int | None) -> NDArray[np.bool_]:
    """Say which keys each token sees: `[length, length]`."""
    places = np.arange(length)
    distances = places[:, None] - places
    seen = np.broadcast_to(places < keys, (length, length)).copy()
    if causal:
        seen &= distances >= 0
    if window:
        seen &= np.abs(distances) < window
    return seen


def _attended(
    joined: Wide,
    parts: LayerParts,
    settings: Settings,
    angles: list[Wide] | None,
    relative: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]] | None,
    biases: NDArray[np.float32] | None,
    seen: NDArray[np.bool_],
) -> Wide:
    """Attend within one sequence: `[length, heads * head_size]`; a token that sees no key gets zeros."""
    heads, key_heads, size = settings.heads, settings.key_heads, settings.head_size
    query, key, value = (
        part.reshape(len(joined), -1, size)
        for part in np.split(joined, [heads * size, (heads + key_heads) * size], axis=1)
    )
    if parts.query_norm is not None and parts.key_norm is not None:
        query = _norm(query, parts.query_norm, settings, of_head=True)
        key = _norm(key, parts.key_norm, settings, of_head=True)
    if angles is not None:
        query, key = (_rotated(part, angles, settings.row.rotary == "interleaved") for part in (query, key))
    found = np.zeros((len(joined), heads, size))
    some = seen.any(1)
    for head in range(heads):
        shared = head * key_heads // heads
        scores = query[:, head] @ key[:, shared].T
        if relative is not None:
            scores += _by_distance(query[:, head], key[:, head], relative, slice(head * size, (head + 1) * size))
        scores *= settings.scale
        if biases is not None:
            scores += biases[head]
        scores = np.where(seen, scores, -np.inf)
        found[some, head] = softmax(scores[some]) @ value[:, shared]
    return found.reshape(len(joined), heads * size)


def _biases(by_distance: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Spread biases over the pairs of a sequence: `[heads, queries, keys]`."""
    farthest, places = by_distance.shape[1] // 2, np.arange(length)
    return by_distance[:, np.clip(places - places[:, None], -farthest, farthest) + farthest]


def _by_distance(
    query: Wide,
    key: Wide,
    relative: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]],
    head: slice,
) -> Wide:
    """Score content to position and position to content (arXiv 2006.03654)."""
    keys, queries, rows = relative
    places = np.arange(len(query))
    row = rows[places[:, None] - places + len(query) - 1]
    to_position = np.take_along_axis(query @ keys[:, head].T, row, axis=1)
    to_content = np.take_along_axis(queries[:, head] @ key.T, row, axis=0)
    total: Wide = to_position + to_content
    return total


def _rotated(states: Wide, angles: list[Wide], interleaved: bool) -> Wide:
    """Turn the first elements of each head (arXiv 2104.09864)."""
    cosine, sine = (part[:, None] for part in angles)
    width = cosine.shape[-1]
    turned = states.copy()
    if interleaved:
        first, second = turned[..., :width:2].copy(), turned[..., 1:width:2].copy()
        cosine, sine = cosine[..., : width // 2], sine[..., : width // 2]
        turned[..., :width:2], turned[..., 1:width:2] = first * cosine - second * sine, second * cosine + first * sine
        return turned
    first, second = np.split(states[..., :width], 2, axis=-1)
    turned[..., :width] = states[..., :width] * cosine + np.concatenate((-second, first), axis=-1) * sine
    return turned
