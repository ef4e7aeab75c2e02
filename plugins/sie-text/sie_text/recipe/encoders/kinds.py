"""Distinguishes kinds of models whose files several families might claim."""

from __future__ import annotations

from sie_core.contracts import ModelCard
from sie_text.architectures import architecture_of
from sie_text.recipe.encoders.router import is_sparse_router

_OTHER_KINDS = (".sparse_encoder.", ".cross_encoder.", ".multi_vector_encoder.")
"""Packages of sentence-transformers whose modules are no dense encoder's."""


def is_dense_encoder(card: ModelCard) -> bool:
    """Whether the files are those of a dense encoder of sentence-transformers, or of a plain checkpoint."""
    if card.sentence_transformers.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return False
    if is_sparse_router(card) or any(module.type.startswith("pylate.") for module in card.modules):
        return False
    return not any(kind in module.type for module in card.modules for kind in _OTHER_KINDS)


def foreign_class(card: ModelCard) -> str | None:
    """Name a class of the checkpoint that does not belong to its model type; None if all do.

    The classes of a type begin with its name: `nomic_bert` has `NomicBertModel`, and `NomicVisionModel` belongs to
    another type. Its record may know others.
    """
    own, record = _letters(card.model_type or ""), architecture_of(card)
    known = set() if record is None else {name.rpartition(".")[2] for name in record.published}
    others = (name for name in card.architectures if name not in known)
    return next((name for name in others if not _letters(name).startswith(own)), None)


def class_of_type(name: str, model_type: str | None, suffix: str) -> bool:
    """Whether a class is transformers' own of a model type with that suffix: `DebertaV2For…` of `deberta-v2`."""
    return bool(model_type) and _letters(name) == _letters(f"{model_type}{suffix}")


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def is_headless(card: ModelCard) -> bool:
    """Whether the checkpoint was saved from a base model.

    One saved with a language-modelling or classification head may be anything: BERT's and SPLADE's files say the same.
    """
    return bool(card.architectures) and all(name.endswith(("Model", "Encoder")) for name in card.architectures)
