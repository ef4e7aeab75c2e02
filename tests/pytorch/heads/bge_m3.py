"""BGE-M3-shaped models, and what the paper's three heads give, written out in float64 from its description."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from sie_core.contracts import PinnedFile
from tests.pytorch.encoders import save_encoder
from tests.pytorch.models import DEVIATION, HIDDEN
from tests.pytorch.tokenizers import CORPUS

LAYERS = {"sparse_linear": 1, "colbert_linear": HIDDEN}
Matrix = NDArray[np.float64]


def save_bge_m3(base: Path, folder: Path) -> SentenceTransformer:
    """Save the checkpoint in `base` with CLS pooling, and the two layers beside it as safetensors."""
    model = save_encoder(base, folder, st.Pooling(HIDDEN, "cls"), st.Normalize(), length=60)
    random = np.random.default_rng(8)
    usual = np.concatenate([token_states(model, text)[1] for text in CORPUS]).mean(0)
    for name, width in LAYERS.items():
        weight = random.standard_normal((width, HIDDEN)) * DEVIATION
        # States have much in common, which would give all tokens a weight, or none.
        layer = {"weight": weight.astype(np.float32), "bias": (-weight @ usual).astype(np.float32)}
        save_file(layer, folder / f"{name}.safetensors")
    return model


def pickle_layers(folder: Path) -> dict[str, PinnedFile]:
    """Keep the layers as the published checkpoint does; return what pins them."""
    pins = {}
    for name in LAYERS:
        file = folder / f"{name}.safetensors"
        torch.save({key: torch.from_numpy(value) for key, value in load_file(file).items()}, folder / f"{name}.pt")
        file.unlink()
        pins[f"{name}.pt"] = pin(folder / f"{name}.pt")
    return pins


def pin(file: Path) -> PinnedFile:
    return PinnedFile(file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())


def token_states(model: SentenceTransformer, text: str) -> tuple[list[int], Matrix]:
    """Run a text alone: its ids and the states of its tokens."""
    features = model.preprocess([text])
    with torch.inference_mode():
        states = model[0].model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])
    return features["input_ids"][0].tolist(), states.last_hidden_state[0].double().numpy()


def expected_weights(model: SentenceTransformer, folder: Path, texts: Sequence[str], dims: int) -> Matrix:
    """Weigh tokens: relu of a linear layer on the state, the largest of a token that repeats, special ones none."""
    layer = load_file(folder / "sparse_linear.safetensors")
    tokenizer = model.tokenizer
    special = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    rows = np.zeros((len(texts), dims))
    for row, text in zip(rows, texts, strict=True):
        ids, states = token_states(model, text)
        for number, state in zip(ids, states, strict=True):
            if number not in special:
                row[number] = max(row[number], float(layer["weight"][0].astype(np.float64) @ state + layer["bias"][0]))
    assert 0.1 < (rows > 0).sum() / sum(len(set(token_states(model, text)[0])) for text in texts) < 0.9
    return rows


def expected_vectors(model: SentenceTransformer, folder: Path, texts: Sequence[str]) -> list[Matrix]:
    """Project the states of all tokens but the first, and scale them."""
    layer = load_file(folder / "colbert_linear.safetensors")
    vectors = []
    for text in texts:
        _, states = token_states(model, text)
        projected = states[1:] @ layer["weight"].astype(np.float64).T + layer["bias"]
        vectors.append(projected / np.linalg.norm(projected, axis=1, keepdims=True))
    return vectors
