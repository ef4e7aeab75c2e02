"""BGE-M3's token weights and token vectors, written out in float64 from its paper (arXiv 2402.03216).

The states are those of sentence-transformers' own forward pass, one text at a time. No library among those SIE needs
computes these two outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sie_pytorch.heads import read_pinned

from sie_core.contracts import (
    Compared,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelInfo,
    NoReferenceError,
    PinnedFile,
    ReferenceModel,
    Task,
)
from sie_sentence_transformers.references.vectors import COMMON, open_library, sparse_of
from sie_sentence_transformers.references.words import refuse_fallback, refuse_options, words_of

LAYERS: dict[Compared, str] = {"sparse": "sparse_linear", "multivector": "colbert_linear"}

Matrix = NDArray[np.float64]


class TokenLayers(ReferenceModel):
    """Two linear layers over the states of a text encoder."""

    def __init__(self, library: Any, layers: dict[Compared, dict[str, Matrix]]) -> None:
        self._library = library
        self._layers = layers
        self.gives = frozenset(layers)

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> TokenLayers:
        """Load the encoder and the layers.

        Raises:
            NoReferenceError: There are no such layers.
        """
        refuse_fallback(served)
        assert context.card is not None
        card = context.card
        pickles = context.model.config.pickles
        layers = {output: layer for output, name in LAYERS.items() if (layer := _layer(card, name, pickles))}
        if not layers:
            raise NoReferenceError("is for models with the layers of BGE-M3")
        library = open_library(SentenceTransformer, context, served)
        return cls(library, layers)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Weight and project the tokens of each text separately.

        Raises:
            NoReferenceError: The profile has an option that is not written out here.
        """
        refuse_options(task, COMMON - {"normalize", "max_seq_length", "query_max_length"})
        words = words_of(task)
        prompt = words.prompt
        if prompt is None:
            name = task.input_type or self._library.default_prompt_name
            prompt = self._library.prompts.get(name, "")
        return [self._output(f"{prompt}{item.text}{words.suffix}") for item in items]

    def _output(self, text: str) -> ItemOutput:
        ids, states = self._states(text)
        output = ItemOutput()
        if "sparse" in self._layers:
            output.sparse = sparse_of(self._weights(ids, states))
        if "multivector" in self._layers:
            # The first token stands for the whole text and has no separate vector.
            projected = self._project("multivector", states[1:])
            output.multivector = (projected / np.linalg.norm(projected, axis=1, keepdims=True)).astype(np.float32)
        return output

    def _states(self, text: str) -> tuple[list[int], Matrix]:
        features = self._library.preprocess([text])
        with torch.inference_mode():
            out = self._library[0].model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])
        return features["input_ids"][0].tolist(), out.last_hidden_state[0].double().numpy()

    def _weights(self, ids: Sequence[int], states: Matrix) -> NDArray[np.float32]:
        """Take the largest weight of each token that is not one of those the paper's code leaves out."""
        tokenizer = self._library.tokenizer
        special = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
        row = np.zeros(max(len(tokenizer), int(self._library[0].model.config.vocab_size)))
        for number, weight in zip(ids, self._project("sparse", states)[:, 0], strict=True):
            if number not in special:
                row[number] = max(row[number], weight)
        return row.astype(np.float32)

    def _project(self, output: Compared, states: Matrix) -> Matrix:
        layer = self._layers[output]
        projected: Matrix = states @ layer["weight"].astype(np.float64).T + layer["bias"]
        return projected


def _layer(card: ModelCard, name: str, pickles: Mapping[str, PinnedFile]) -> dict[str, Matrix] | None:
    """Read a layer; None if it is missing, or a pickle without a pinned hash."""
    if f"{name}.safetensors" in card.files:
        layer: dict[str, Matrix] = load_file(card.path / f"{name}.safetensors")
        return layer
    pinned = pickles.get(f"{name}.pt")
    if pinned is None or f"{name}.pt" not in card.files:
        return None
    tensors = read_pinned(card.path / f"{name}.pt", pinned, ("weight", "bias"))
    return {each: tensor.double().numpy() for each, tensor in tensors.items()}
