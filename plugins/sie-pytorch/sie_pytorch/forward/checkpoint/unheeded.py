"""Refuses configs that ask for something their class silently ignores."""

from __future__ import annotations

from typing import Any

from sie_text.architectures import IgnoredConfigError

POSITIONS = (None, "absolute")
ROTATIONS = ("rotary", "rope", "nope")
"""Allowed values of `position_embedding_type`: of any model, and of a model whose class rotates."""


def refuse_unheeded(config: Any) -> None:
    """Refuse a transformers config with a `position_embedding_type` that its class does not read (any longer).

    Raises:
        IgnoredConfigError: `CONFIG`.
    """
    stated = getattr(config, "position_embedding_type", None)
    rotates = hasattr(type(config), "rope_parameters") or hasattr(type(config), "position_embedding_type")
    if stated not in (*POSITIONS, *(ROTATIONS if rotates else ())):
        raise IgnoredConfigError(
            "CONFIG",
            f"config.json sets position_embedding_type={stated!r}, and transformers' {config.model_type} has "
            f"{'rotary' if rotates else 'absolute'} positions alone: its vectors would be others than trained.",
        )
