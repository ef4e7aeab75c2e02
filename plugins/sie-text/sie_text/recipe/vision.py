"""Reads the model of images and texts that a checkpoint's files describe; loads no weights and no model library.

Anything it cannot express is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sie_core.contracts import ModelCard, ModuleCard
from sie_text.recipe.files import card_below, size
from sie_text.recipe.settings import NotUnderstoodError, TransformerSettings

VISION_ARCHITECTURES: Mapping[str, str] = {"clip": "CLIPModel", "siglip": "SiglipModel"}
"""transformers model types, with the class that has both towers. SigLIP 2 of fixed size has the type `siglip`."""
LEGACY = "CLIPModel"
"""A module of older versions of sentence-transformers, in its own folder."""
METHODS: Mapping[str, str] = {"text": "get_text_features", "image": "get_image_features"}
FILE = "the Transformer's settings"


@dataclass(frozen=True, slots=True)
class VisionRecipe:
    """The location of a model of images and texts, and the steps after its features."""

    card: ModelCard
    """The folder of transformers' checkpoint, possibly below the model's."""
    transformer: TransformerSettings
    normalizes: bool
    """Whether the files ask for normalised vectors."""
    _: KW_ONLY
    reason: str
    """A description for operators."""


def read_vision_recipe(card: ModelCard) -> VisionRecipe:
    """Read a model of images and texts: a plain checkpoint of transformers, or one of sentence-transformers' two.

    Raises:
        NotUnderstoodError: It is no model of images and texts, or the files ask for something this family does not do.
    """
    if not card.modules:
        return VisionRecipe(card, TransformerSettings(), False, reason=f"it is a {_architecture(card)} checkpoint")
    first, *others = card.modules
    _check_files(card)
    kinds = [module.kind for module in card.modules]
    if kinds[1:] not in ([], ["Normalize"]) or not all(_is_theirs(module) for module in card.modules):
        raise NotUnderstoodError(f"modules.json chains {' → '.join(kinds)}")
    if first.kind == LEGACY:
        settings = TransformerSettings()
    elif first.kind == "Transformer":
        _architecture(card)
        settings = _settings(first.config)
    else:
        raise NotUnderstoodError(f"modules.json begins with {first.kind}")
    reason = f"its modules.json chains {' → '.join(kinds)} of images and texts"
    return VisionRecipe(card_below(card, first.path), settings, bool(others), reason=reason)


def _architecture(card: ModelCard) -> str:
    wanted = VISION_ARCHITECTURES.get(card.model_type or "")
    if wanted is None or (card.architectures and wanted not in card.architectures):
        raise NotUnderstoodError(f"it is a checkpoint of {card.model_type!r}, {', '.join(card.architectures)}")
    return wanted


def _is_theirs(module: ModuleCard) -> bool:
    return module.type.startswith("sentence_transformers.")


def _check_files(card: ModelCard) -> None:
    files = card.sentence_transformers
    if files.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise NotUnderstoodError(f"it is a {files['model_type']}")
    if files.get("truncate_dim"):
        raise NotUnderstoodError("config_sentence_transformers.json sets truncate_dim")


def _settings(config: Mapping[str, Any]) -> TransformerSettings:
    known = {"transformer_task", "modality_config", "module_output_name", "processing_kwargs"}
    known |= {"max_seq_length", "do_lower_case"}
    if unknown := sorted(name for name, value in config.items() if value and name not in known):
        raise NotUnderstoodError(f"{FILE} set {', '.join(unknown)}")
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise NotUnderstoodError(f"{FILE} ask for the task {config['transformer_task']!r}")
    modalities = config.get("modality_config") or {name: {"method": method} for name, method in METHODS.items()}
    asked = {name: (how or {}).get("method") for name, how in modalities.items()}
    if asked != METHODS:
        raise NotUnderstoodError(f"{FILE} read {', '.join(f'{name} by {how}' for name, how in asked.items())}")
    _check_processing(config.get("processing_kwargs") or {})
    return TransformerSettings(
        max_seq_length=size(config, "max_seq_length", FILE), do_lower_case=bool(config.get("do_lower_case", False))
    )


def _check_processing(arguments: Mapping[str, Any]) -> None:
    """Allow arguments that change nothing: texts are padded to the full length anyway if the model was trained so."""
    if any(values for name, values in arguments.items() if name != "text"):
        raise NotUnderstoodError(f"{FILE} set processing_kwargs of {', '.join(arguments)}")
    same = {"padding": (True, "max_length"), "truncation": (True, "longest_first")}
    if wrong := [name for name, value in (arguments.get("text") or {}).items() if value not in same.get(name, ())]:
        raise NotUnderstoodError(f"{FILE} set processing_kwargs.text {', '.join(wrong)}")
