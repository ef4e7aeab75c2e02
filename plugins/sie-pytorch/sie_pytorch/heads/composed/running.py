"""The runner of a model that is being loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from sie_text.architectures import IgnoredConfigError
from sie_text.recipe import NotUnderstoodError, OwnCodeError, heed_auto_map

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError, ResolvedModel

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner, Judge


def runner_for(
    context: LoadContext,
    card: ModelCard,
    auto_classes: Sequence[str] = (),
    *,
    expands_queries: bool = False,
    takes_lora: bool = False,
    dense: bool = False,
    judge: Judge | None = None,
) -> BuiltRunner:
    """Build the runner of a checkpoint.

    Args:
        context: The model to load and its device.
        card: The checkpoint's.
        auto_classes: transformers' names of the classes, such as `AutoModelForMaskedLM`, whose heads are loaded.
        expands_queries: As `build_runner` takes it.
        takes_lora: Whether the family applies LoRA adapters; a runner then must too if the config declares some.
        dense: Whether the model gives dense vectors; another family makes them if its own code has to run.
        judge: As `build_runner` takes it.

    Raises:
        ModelLoadError: The checkpoint is damaged, or needs something that is not installed.
        NotUnderstoodError: transformers has no base model for it that turns token ids into states.
        OutOfDeviceMemory: The device has no room.
    """
    # Imports transformers' models, which takes longer than everything else here.
    from sie_pytorch.forward import build_runner, keep_refusal, recall_refusal

    torch.set_num_threads(context.threads)
    refusal = recall_refusal(context)
    try:
        notes = heed_auto_map(context, card.config, *auto_classes, runs="elsewhere" if dense else "nowhere")
        built = build_runner(
            card.path,
            card,
            context.device,
            "float32" if refusal else context.precision,
            context.attention_backend,
            context.runners,
            context.threads,
            expands_queries=expands_queries,
            runner=context.runner,
            choices=context.choices,
            needs_lora=takes_lora and _asks_for_lora(context.model),
            judge=judge,
        )
    except ModelLoadError as error:
        by_others = error.failure == "CONFIG" and not isinstance(error, (IgnoredConfigError, OwnCodeError))
        if by_others or context.model.config.trust_remote_code:
            raise NotUnderstoodError(str(error)) from error
        raise
    if refusal is not None:
        notes = {**notes, "precision": refusal}
    elif built.info.precision == "float32" != context.precision:
        keep_refusal(context, built.info.notes["precision"])
    built.info = replace(built.info, notes={**built.info.notes, **notes})
    return built


def _asks_for_lora(model: ResolvedModel) -> bool:
    """Return whether the config declares LoRA adapters, or the profile uses one."""
    return bool(model.config.loras) or any(model.profile.runtime.get(name) for name in ("lora", "lora_id"))
