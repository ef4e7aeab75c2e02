"""The runner of a model that is being loaded. It knows no head and no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError
from sie_pytorch.recipe import NotUnderstoodError

if TYPE_CHECKING:
    from sie_pytorch.runners import BuiltRunner


def runner_for(context: LoadContext, card: ModelCard, *, fills_up: bool = False) -> BuiltRunner:
    """Build the runner of a checkpoint; `fills_up` as `build_runner` takes it.

    Raises:
        ModelLoadError: The checkpoint is damaged, or asks for what is not installed.
        NotUnderstoodError: transformers has no base model for it that turns token ids into states.
        OutOfDeviceMemory: The device has no room.
    """
    # Imports transformers' models, which takes longer than all else here.
    from sie_pytorch.runners import build_runner
    from sie_pytorch.runners.dialects import UnheededError

    torch.set_num_threads(context.threads)
    try:
        return build_runner(
            card.path,
            card,
            context.device,
            context.precision,
            context.attention_backend,
            context.runners,
            context.threads,
            fills_up=fills_up,
        )
    except ModelLoadError as error:
        by_others = error.failure == "CONFIG" and not isinstance(error, UnheededError)
        if by_others or context.model.config.trust_remote_code:
            raise NotUnderstoodError(str(error)) from error
        raise
