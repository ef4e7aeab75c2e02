"""Has sentence-transformers load a model, only from local safetensors, and limits the length of its texts."""

from __future__ import annotations

import json
from typing import Any

import torch
from sie_text.lengths import assumed_length
from sie_text.loading import disable_progress_bars, needed_card
from sie_text.recipe import heed_auto_map
from sie_text.tokenizer import lacking_config

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError
from sie_sentence_transformers.fallback.counting import takes_length, token_limit
from sie_sentence_transformers.fallback.proof import positions_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def limit_length(model: Any, length: int | None, card: ModelCard) -> str | None:
    """Set the length that the model's config asks for, or an assumed one; describe a length that was not requested.

    An input module without a length, such as a table of words, costs only as much as the text is long.
    """
    own, note = token_limit(model), None
    most = positions_of(model)
    if most is not None and takes_length(model) and (own is None or most < own):
        model.max_seq_length = own = most
    if own is None and takes_length(model):
        if length is None:
            length, note = assumed_length(card)
        model.max_seq_length = length
        return note
    if length is None or length == own:
        return None
    if own is not None and length < own:
        model.max_seq_length = length
        return None
    return f"not the {length} tokens its config asks for: its input module has a limit of {own}"


def heed_own_code(context: LoadContext, card: ModelCard) -> dict[str, str]:
    """Refuse transformers whose own code is neither known, ignored nor trusted; return notes on the decision.

    Raises:
        ModelLoadError: `CONFIG`, naming the class. `CORRUPT`: a config cannot be read.
    """
    notes: dict[str, str] = {}
    for folder in dict.fromkeys((card.path, *(module.path for module in card.modules))):
        file = folder / "config.json"
        if not file.is_file():
            continue
        name = file.relative_to(card.path).as_posix()
        try:
            config = json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelLoadError("CORRUPT", f"{name} cannot be read as JSON.") from error
        notes |= heed_auto_map(context, config, runs="here", file=name) if isinstance(config, dict) else {}
    return notes


def load_model(context: LoadContext, folder: str) -> Any:
    """Load only local safetensors."""
    from sentence_transformers import SentenceTransformer

    disable_progress_bars()
    on_cpu = context.device.kind == "cpu"
    arguments: dict[str, Any] = {
        "use_safetensors": True,
        "dtype": torch.float32 if on_cpu else DTYPES[context.precision],
    }
    if context.attention_backend != "auto":
        arguments["attn_implementation"] = context.attention_backend
    try:
        return SentenceTransformer(
            folder,
            device=str(context.device),
            local_files_only=True,
            trust_remote_code=context.model.config.trust_remote_code,
            model_kwargs=arguments,
        )
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"{context.model.id} needs a package that is not installed: {error.name}."
        ) from error
    except Exception as error:
        # Any module of the library, or of the weights, may fail in any way.
        remedy = (
            ""
            if context.model.config.trust_remote_code
            else "; if it needs code that comes with the weights, and you trust it, set `trust_remote_code: true` in "
            "the model's config"
        )
        remedy += lacking_config(needed_card(context))
        raise ModelLoadError(
            "CONFIG", f"sentence-transformers cannot load {context.model.id} ({type(error).__name__}){remedy}."
        ) from error
