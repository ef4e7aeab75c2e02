"""Predicts the facts of a load from the card and small files alone, for models that are listed and not loaded.

It loads no weights and imports no model library. Facts that only the weights tell are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sie_core.contracts import ModelCard, ModelConfig, ModelFacts, Operation, OutputType
from sie_text.loading import declared_outputs, matryoshka_dims
from sie_text.recipe import (
    UNLIMITED,
    DenseSettings,
    HeadSettings,
    LayerNormSettings,
    NotUnderstoodError,
    ProjectionSettings,
    Recipe,
    entails,
    is_sparse_router,
    read_pair_recipe,
    read_recipe,
    read_routes,
)
from sie_text.recipe import read_vision_recipe as read_vision_layout

STATE_SIZES = ("hidden_size", "dim", "d_model")
"""Keys of `config.json` for the size of the transformer's states."""
UNSTATED_SIZES = {"clip": 512, "siglip": 768}
"""transformers' default vector sizes if `config.json` omits them, as that of SigLIP 2 does."""
_LONGEST_HEADER = 2**25

Dims = dict[OutputType, int | None]
"""The size of each kind of vector, in order; None if only the weights tell it."""


def preview_encoder(card: ModelCard, config: ModelConfig) -> ModelFacts | None:
    """Preview a text encoder."""
    try:
        if is_sparse_router(card):
            encoder = read_routes(card).encoder
            return _facts(config, card, {"sparse": None if encoder is None else _size(encoder.config, ("vocab_size",))})
        return _preview_recipe(read_recipe(card, declared_outputs(config), config.pickles), card, config)
    except NotUnderstoodError:
        return _facts(config, card, {"dense": None})  # whatever family serves it then


def preview_pairs(card: ModelCard, config: ModelConfig) -> ModelFacts | None:
    """Preview a model of pairs; it also classifies if one of its labels means entailment."""
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError:
        return None
    if recipe.single_texts and not any(profile.runtime.get("score_label") for profile in config.profiles.values()):
        return None
    both = recipe.source == "classifier" and entails(card)
    operations: tuple[Operation, ...] = ("score", "extract") if both else ("score",)
    length = _length(config, card, recipe.transformer.max_seq_length)
    return ModelFacts(operations=operations, max_sequence_length=length)


def preview_vision(card: ModelCard, config: ModelConfig) -> ModelFacts | None:
    """Preview a model of images and texts."""
    try:
        layout = read_vision_layout(card)
    except NotUnderstoodError:
        return None
    written = card.config if layout.card.path == card.path else _read(layout.card, "config.json")
    texts = written.get("text_config") or {}
    projected = written.get("model_type") == "clip"
    size = _size(written, ("projection_dim",)) if projected else _size(texts, ("projection_size", "hidden_size"))
    dims: Dims = {"dense": size or UNSTATED_SIZES.get(str(written.get("model_type")))}
    return _facts(config, card, dims, length=_length(config, layout.card), inputs=("text", "image"))


def _preview_recipe(recipe: Recipe, card: ModelCard, config: ModelConfig) -> ModelFacts:
    hidden = _size(card.config, STATE_SIZES)
    dims: Dims = {}
    if recipe.pooling is not None:
        dense = _after(recipe.head, None if hidden is None else hidden * len(recipe.pooling.modes))
        dims["dense"] = min(dense, recipe.truncate_dim) if dense and recipe.truncate_dim else dense
    if recipe.sparse is not None:
        dims["sparse"] = _size(card.config, ("vocab_size",))
    if recipe.multivector is not None:
        dims["multivector"] = _after(recipe.multivector.steps, hidden)
    return _facts(config, card, dims, length=_length(config, card, recipe.transformer.max_seq_length))


def _facts(
    config: ModelConfig, card: ModelCard, dims: Dims, *, length: int | None = None, inputs: tuple[str, ...] = ("text",)
) -> ModelFacts:
    known = {name: size for name, size in dims.items() if size is not None}
    return ModelFacts(
        outputs=tuple(dims),
        inputs=inputs,
        dims=known,
        matryoshka_dims=matryoshka_dims(config, card, known["dense"]) if "dense" in known else (),
        max_sequence_length=length,
    )


def _length(config: ModelConfig, card: ModelCard, stated: int | None = None) -> int | None:
    """Return the limit on the length of texts, by the model's config, the modules' files or the tokenizer."""
    limit = _size(_read(card, "tokenizer_config.json"), ("model_max_length",))
    return config.max_sequence_length or stated or (None if limit is None or limit >= UNLIMITED else limit)


def _after(steps: Iterable[HeadSettings], size: int | None) -> int | None:
    """Follow the size of a vector through the layers of a head."""
    for step in steps:
        if isinstance(step, DenseSettings):
            size = step.out_features
        elif isinstance(step, LayerNormSettings):
            size = step.dims
        elif isinstance(step, ProjectionSettings):
            size = _rows(step)
    return size


def _rows(projection: ProjectionSettings) -> int | None:
    """Read the output size of a layer from the header of its safetensors file; a pickle has none."""
    if projection.pinned is not None:
        return None
    try:
        with projection.file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length < _LONGEST_HEADER else {}
        return int(header[projection.weight]["shape"][0])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _size(config: Mapping[str, Any], names: Iterable[str]) -> int | None:
    sizes = (config.get(name) for name in names)
    return next((size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)


def _read(card: ModelCard, name: str) -> Mapping[str, Any]:
    try:
        content = json.loads((card.path / name).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
