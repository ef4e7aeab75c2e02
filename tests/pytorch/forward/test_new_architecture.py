"""GTE's `NewModel` (GTE v1.5, GTE multilingual, Stella) against a float64 reference written from its description.

The reference reads the published parameter names and config fields: post-norm layers, one projection for query, key and
value, rotary positions with fixed NTK scaling, and a gated MLP whose first half is the value and second half the gate.

Sequences stay below a hundred tokens: at three hundred, the rounding of a float32 frequency alone moves the states of
these saturated random layers by 2e-4, in transformers' class in float64 just as in float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from sie_core.contracts import ModelLoadError
from tests.pytorch.forward.support import SHORT, TOLERANCE, PackedBatch, build, deviation, forward, packed_batch
from tests.pytorch.models import write_new

AGAINST_FLOAT64 = 2 * TOLERANCE
"""The angles of rotary positions, float32 in the model, already differ by about TOLERANCE from the description's."""

Weights = dict[str, np.ndarray]


def layer_norm(states: np.ndarray, weights: Weights, name: str, epsilon: float) -> np.ndarray:
    centred = states - states.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + torch.erf(torch.from_numpy(x) / np.sqrt(2)).numpy())


def rotate(states: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Rotate `[length, heads, size]` by position: dimension i pairs with i + size / 2."""
    length, _, size = states.shape
    scaling = config["rope_scaling"]
    factor = scaling["factor"] if scaling else 1.0
    pairs = np.arange(0, size, 2) / size
    frequencies = (config["rope_theta"] * factor) ** -pairs / factor ** (2 / size)
    angles = (np.arange(length)[:, None] * frequencies)[:, None]
    first, second = states[..., : size // 2], states[..., size // 2 :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(states: np.ndarray, weights: Weights, layer: str, config: dict[str, Any]) -> np.ndarray:
    heads = config["num_attention_heads"]
    length, hidden = states.shape
    qkv = states @ weights[f"{layer}.attention.qkv_proj.weight"].T + weights[f"{layer}.attention.qkv_proj.bias"]
    query, key, value = (part.reshape(length, heads, -1) for part in np.split(qkv, 3, axis=-1))
    query, key = rotate(query, config), rotate(key, config)
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(hidden // heads)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), value).reshape(length, hidden)
    return mixed @ weights[f"{layer}.attention.o_proj.weight"].T + weights[f"{layer}.attention.o_proj.bias"]


def reference(folder: Path, batch: PackedBatch) -> torch.Tensor:
    """Compute the states of each sequence alone, in float64."""
    config = json.loads((folder / "config.json").read_text())
    weights = {name: weight.astype(np.float64) for name, weight in load_file(folder / "model.safetensors").items()}
    weights = {name.removeprefix("new."): weight for name, weight in weights.items()}
    epsilon = config["layer_norm_eps"]
    flat = []
    for place in batch.places:
        states = weights["embeddings.word_embeddings.weight"][batch.ids[place].numpy()]
        if config["type_vocab_size"]:
            types = 0 if batch.types is None else batch.types[place].numpy()
            states = states + weights["embeddings.token_type_embeddings.weight"][types]
        states = layer_norm(states, weights, "embeddings.LayerNorm", epsilon)
        for number in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{number}"
            mixed = attend(states, weights, layer, config)
            states = layer_norm(states + mixed, weights, f"{layer}.attn_ln", epsilon)
            value, gate = np.split(states @ weights[f"{layer}.mlp.up_gate_proj.weight"].T, 2, axis=-1)
            inner = gelu(gate) * value @ weights[f"{layer}.mlp.down_proj.weight"].T
            inner = inner + weights[f"{layer}.mlp.down_proj.bias"]
            states = layer_norm(states + inner, weights, f"{layer}.mlp_ln", epsilon)
        flat.append(states)
    return torch.from_numpy(np.concatenate(flat)).float()


@pytest.mark.parametrize(
    ("fields", "types"),
    [
        ({}, 2),
        ({"type_vocab_size": 1}, 0),
        ({"type_vocab_size": 0}, 0),
        ({"rope_scaling": None}, 2),
        ({"rope_scaling": {"type": "ntk", "factor": 8.0}, "rope_theta": 20000}, 0),
        ({"model_type": "gte", "architectures": ["GteModel"]}, 2),
    ],
)
def test_packed_states_equal_the_description(fields: dict[str, Any], types: int, tmp_path: Path) -> None:
    folder = write_new(tmp_path, **fields)
    runner = build(folder)
    assert runner.info.name == "packed", runner.info.reason
    batch = packed_batch(SHORT, types=types)
    assert deviation(forward(runner, batch), reference(folder, batch)) <= AGAINST_FLOAT64


def test_a_checkpoint_saved_with_a_head_has_a_prefix(tmp_path: Path) -> None:
    folder = write_new(tmp_path, prefix="new.")
    batch = packed_batch(SHORT, types=2)
    assert deviation(forward(build(folder), batch), reference(folder, batch)) <= AGAINST_FLOAT64


def test_the_scaling_of_the_rotation_is_seen(tmp_path: Path) -> None:
    folder = write_new(tmp_path)
    batch = packed_batch(SHORT, types=2)
    states = forward(build(folder), batch)
    config = json.loads((folder / "config.json").read_text())
    for scaling in (None, {"type": "ntk", "factor": 3.9}):
        (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": scaling}))
        assert deviation(states, reference(folder, batch)) > TOLERANCE


@pytest.mark.parametrize(
    "fields",
    [
        {"logn_attention_scale": True},
        {"position_embedding_type": "absolute"},
        {"layer_norm_type": "rms_norm"},
        {"pack_qkv": False},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}},
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = write_new(tmp_path, **fields)
    (field,) = fields
    with pytest.raises(ModelLoadError, match=r"config\.json sets ") as caught:
        build(folder)
    assert caught.value.failure == "CONFIG"
    assert field.removeprefix("rope_scaling") in str(caught.value)
