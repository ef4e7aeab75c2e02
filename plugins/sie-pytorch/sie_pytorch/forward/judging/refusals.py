"""Reasons against half precision from an earlier load, so that the next one starts in float32."""

from __future__ import annotations

import json

import torch
import transformers
from sie_text.loading import profile_options

from sie_core.contracts import KeptChoice, LoadContext

ABOUT = "precision"
"""Subject under which the choice is kept."""


def recall_refusal(context: LoadContext) -> str | None:
    """Return why an earlier load of these weights ended in float32; None if none did, or nothing is kept."""
    kept = None if context.choices is None else context.choices.recall(ABOUT, _setup(context))
    return None if kept is None else f"{kept.reason} (found by an earlier load)"


def keep_refusal(context: LoadContext, reason: str) -> None:
    """Keep why this load ended in float32."""
    if context.choices is not None:
        context.choices.keep(KeptChoice(ABOUT, "float32", reason, setup=_setup(context)))


def _setup(context: LoadContext) -> dict[str, str]:
    """List the conditions of the choice, other than the weights, the machine and the versions of plugins."""
    return {
        "device": f"{context.device} {context.device.name}",
        "asked for": context.precision,
        "options": json.dumps([context.model.profile.loadtime, profile_options(context)], sort_keys=True, default=str),
        "runner": context.runner,
        "attention backend": context.attention_backend,
        "runners": ", ".join(sorted(spec.name for spec in context.runners)),
        "builds": "; ".join(spec.build for spec in context.runners if spec.build),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
