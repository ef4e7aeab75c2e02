"""Twelve text encoders of the size of MiniLM with random weights, in the Hub's layout: what a real catalog weighs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from transformers import BertConfig

from tests.pytorch.tokenizers import write_tokenizer

COUNT = 12
HIDDEN, LAYERS, INNER, VOCABULARY, POSITIONS = 384, 6, 1536, 30522, 512


def names() -> list[str]:
    """Name the models, the most popular first."""
    return [f"soak/model-{number:02}" for number in range(COUNT)]


def write_models(folder: Path) -> None:
    """Write the checkpoints and a config for each; 91 MB of float32 a model."""
    drawn = _tensors(np.random.default_rng(0))
    for number, name in enumerate(names()):
        weights = folder / "weights" / f"{number:02}"
        weights.mkdir(parents=True)
        BertConfig(
            hidden_size=HIDDEN, num_hidden_layers=LAYERS, intermediate_size=INNER, architectures=["BertModel"]
        ).save_pretrained(weights)
        write_tokenizer("bert", weights)
        own = {tensor: np.roll(values, number) for tensor, values in drawn.items()}
        save_file(own, weights / "model.safetensors", metadata={"format": "pt"})
        config = {
            "sie_id": name,
            "weights_path": str(weights),
            "tasks": {"encode": {"dense": {"dim": HIDDEN}}},
            "profiles": {"default": {"compute_precision": "float32"}},
        }
        (folder / f"{number:02}.yaml").write_text(json.dumps(config))


def _tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw every tensor of a `BertModel` at a standard deviation of 0.3."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
        "pooler.dense.bias": (HIDDEN,),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
        linear = {f"attention.self.{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")}
        linear["attention.output.dense"] = (HIDDEN, HIDDEN)
        linear |= {"intermediate.dense": (INNER, HIDDEN), "output.dense": (HIDDEN, INNER)}
        for name, (out, into) in linear.items():
            shapes[f"{at}.{name}.weight"], shapes[f"{at}.{name}.bias"] = (out, into), (out,)
    for norm in norms:
        shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (HIDDEN,)
    return {name: 0.3 * rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
