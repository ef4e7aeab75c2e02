"""BGE-M3 (arXiv 2402.03216): a dense encoder with two additional linear layers, for token weights and token vectors.

The layers are read from safetensors. The published ones, `sparse_linear.pt` and `colbert_linear.pt`, are Python
pickles: reading one may run code, and PyTorch's restriction to tensors has failed before. They are read only if they
match the size and SHA-256 that the model's config pins; no other pickle is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sie_core.contracts import ModelCard, PinnedFile
from sie_text.recipe.settings import (
    MultivectorSettings,
    NormalizeSettings,
    PoolingSettings,
    ProjectionSettings,
    Recipe,
    TokenWeightSettings,
)

LAYERS = {"sparse": "sparse_linear", "multivector": "colbert_linear"}
"""The layer of each output: the name of its file, which has the tensors `weight` and `bias`."""

LARGEST_LAYER = 2**26
"""Bytes of a layer's file; BGE-M3's larger one has two million."""

UNPINNED = (
    "{name}.pt is a Python pickle, which can run code when it is read, and is read only where the model's config pins "
    "it (`pickles`: its size and SHA-256). Where you trust it, pin it, or write it beside as safetensors: "
    'python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('{name}.pt', weights_only=True), '{name}.safetensors')\""
)
OTHER = (
    "{name}.pt is not the file that the model's config pins (`pickles`): it {fault}. Fetch it again, or pin this one."
)
ABSENT = (
    "{name}.pt, which holds its layer, is not among the weights' files. `sie cache pull` fetches it where the Hub may "
    "be asked; put it into a folder that a config names as `weights_path` yourself."
)


def add_bge_m3(recipe: Recipe, card: ModelCard, pickles: Mapping[str, PinnedFile]) -> Recipe:
    """Add the heads of BGE-M3 to a dense recipe, as far as their layers exist, and note the missing ones.

    Args:
        recipe: The dense part.
        card: The facts of the files.
        pickles: The pins of the model's config.
    """
    names = {f"{name}{ending}" for name in LAYERS.values() for ending in (".pt", ".safetensors")}
    if not names & {*card.files, *pickles}:
        return recipe
    layers, notes = {}, []
    for output, name in LAYERS.items():
        found = _layer(name, card, pickles.get(f"{name}.pt"))
        if isinstance(found, str):
            notes.append((output, f"Not served: {found}"))
        else:
            layers[output] = found
    if not recipe.declared:
        recipe = replace(recipe, pooling=PoolingSettings(("cls",)), head=(NormalizeSettings(),))
    sparse, multivector = layers.get("sparse"), layers.get("multivector")
    return replace(
        recipe,
        sparse=TokenWeightSettings(sparse) if sparse else None,
        multivector=MultivectorSettings((multivector, NormalizeSettings()), skips_first=True) if multivector else None,
        notes=tuple(notes),
    )


def _layer(name: str, card: ModelCard, pinned: PinnedFile | None) -> ProjectionSettings | str:
    """Find a layer, or word why it is not served."""
    pickled = f"{name}.pt"
    if f"{name}.safetensors" in card.files:
        return ProjectionSettings(card.path / f"{name}.safetensors", "weight", "bias")
    if pickled not in card.files:
        return ABSENT.format(name=name)
    if pinned is None:
        return UNPINNED.format(name=name)
    fault = pin_fault(card.path / pickled, pinned)
    if fault is not None:
        return OTHER.format(name=name, fault=fault)
    return ProjectionSettings(card.path / pickled, "weight", "bias", pinned=pinned)


def pin_fault(file: Path, pinned: PinnedFile) -> str | None:
    """Describe how a file differs from its pin; None if it matches."""
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes(pinned) + 1)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return content_fault(content, pinned)


def most_bytes(pinned: PinnedFile) -> int:
    """Return the most bytes that are read of a layer."""
    return min(pinned.size or LARGEST_LAYER, LARGEST_LAYER)


def content_fault(content: bytes, pinned: PinnedFile) -> str | None:
    """Describe how the content of a file differs from its pin; None if it matches."""
    most = most_bytes(pinned)
    if len(content) > most or pinned.size not in (None, len(content)):
        return f"has {'more than ' if len(content) > most else ''}{min(len(content), most)} bytes"
    found = hashlib.sha256(content).hexdigest()
    return None if found == pinned.sha256 else f"has the SHA-256 {found}"
