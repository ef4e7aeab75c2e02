"""BGE-M3 (arXiv 2402.03216): a dense encoder with two linear layers beside it, for token weights and token vectors.

The layers are read from safetensors alone. The published ones, `sparse_linear.pt` and `colbert_linear.pt`, are Python
pickles: reading one may run what it says, even where PyTorch restricts it to tensors that restriction has failed, and
no hash of them is known here to hold them to.
"""

from __future__ import annotations

from dataclasses import replace

from sie_core.contracts import ModelCard
from sie_pytorch.recipes.settings import (
    MultivectorSettings,
    NormalizeSettings,
    PoolingSettings,
    ProjectionSettings,
    Recipe,
    TokenWeightSettings,
)

LAYERS = {"sparse": "sparse_linear", "multivector": "colbert_linear"}
"""Which layer gives which output: files of this name, with a tensor `weight` and a tensor `bias`."""

REMEDY = (
    "is a Python pickle, which can run code when it is read, and is not read. Where you trust it, write it beside as "
    'safetensors: python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('{name}.pt', weights_only=True), '{name}.safetensors')\""
)


def add_bge_m3(recipe: Recipe, card: ModelCard) -> Recipe:
    """Add the heads of BGE-M3 to a dense recipe, as far as their layers are there, and note what is left out."""
    there = {output: name for output, name in LAYERS.items() if f"{name}.safetensors" in card.files}
    pickled = {output: name for output, name in LAYERS.items() if f"{name}.pt" in card.files and output not in there}
    if not there and not pickled:
        return recipe
    layers = {
        output: ProjectionSettings(card.path / f"{name}.safetensors", "weight", "bias")
        for output, name in there.items()
    }
    if not recipe.declared:
        recipe = replace(recipe, pooling=PoolingSettings(("cls",)), head=(NormalizeSettings(),))
    sparse, multivector = layers.get("sparse"), layers.get("multivector")
    return replace(
        recipe,
        sparse=TokenWeightSettings(sparse) if sparse else None,
        multivector=MultivectorSettings((multivector, NormalizeSettings()), skips_first=True) if multivector else None,
        notes=tuple((output, f"not served: {name}.pt {REMEDY.format(name=name)}") for output, name in pickled.items()),
    )
