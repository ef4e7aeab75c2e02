"""Finds the record of a model type among those of the house and those that plugins registered."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from sie_core.contracts import ArchitectureRecord, ModelCard, ModelLoadError
from sie_text.architectures.house import RECORDS
from sie_text.architectures.record import Architecture

Records = Mapping[str, ArchitectureRecord]
"""What plugins registered, by model type: `ModelCard.records`. Those of the house are known without them."""

HOUSE: Mapping[str, Architecture] = MappingProxyType({each.name: each for each in RECORDS})
NONE: Records = MappingProxyType({})
NOT_FIELDS = frozenset({"model_type", "auto_map", "transformers_version"})
"""Keys of `config.json` that another class's config does not take over."""


def find_architecture(
    model_type: object, records: Records = NONE, passed: tuple[object, ...] = ()
) -> Architecture | None:
    """Find the record of a model type, completed by those it is `like`; None if there is none.

    Args:
        model_type: What `config.json` states.
        records: What plugins registered.
        passed: The model types that are being completed, so that a circle ends.
    """
    found = _named(model_type, records)
    if found is None or found.like in {None, model_type, *passed}:
        return found
    base = find_architecture(found.like, records, (*passed, model_type))
    return found if base is None else found.completed(base)


def _named(model_type: object, records: Records) -> Architecture | None:
    found = records.get(str(model_type)) or HOUSE.get(str(model_type))
    return found if isinstance(found, Architecture) else None


def architecture_of(card: ModelCard) -> Architecture | None:
    """Find the record of a checkpoint's model type."""
    return find_architecture(card.model_type, card.records)


def is_encoder(card: ModelCard) -> bool:
    """Whether a plain checkpoint of the type is taken for a text encoder."""
    found = architecture_of(card)
    return found is not None and found.encoder is not False


def has_classifier(card: ModelCard) -> bool:
    """Whether the type's sequence classifiers read nothing but the last states of their base model."""
    found = architecture_of(card)
    return found is not None and bool(found.classifier)


def translate(config: Mapping[str, Any], records: Records = NONE) -> tuple[str, dict[str, Any]] | None:
    """Translate a checkpoint's config to the model type that computes it, and that one's fields.

    Returns:
        None if transformers reads the config as it is.

    Raises:
        ModelLoadError: `CONFIG`: it asks for something that the class does not compute. `DEPENDENCY`: the function that
            translates it cannot be imported.
    """
    record = find_architecture(config.get("model_type"), records)
    if record is None:
        return None
    fields = None if record.translate is None else named_by(record, record.translate)(config)
    if fields is None and record.served_as == record.name:
        return None
    written = config if fields is None else fields
    return record.served_as, {name: value for name, value in written.items() if name not in NOT_FIELDS}


def named_by(record: Architecture, target: str) -> Any:
    """Import what a record names.

    Raises:
        ModelLoadError: `DEPENDENCY`: it cannot be imported.
    """
    try:
        return resolve_name(target)
    except (ImportError, AttributeError) as error:
        raise ModelLoadError(
            "DEPENDENCY",
            f"The record of the architecture {record.name!r} names {target}, which cannot be imported "
            f"({type(error).__name__}: {error}). Install the distribution that registers it again.",
        ) from error
