"""Loads a text encoder's base model from a checkpoint folder: safetensors alone, every weight accounted for."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING
from transformers.utils.logging import disable_progress_bar

from sie_core.contracts import ModelLoadError, device_errors
from sie_pytorch.runners.dialects import refuse_unheeded, translate
from sie_pytorch.runners.halves import half_of, widen_small_weights
from sie_pytorch.runners.lean_import import import_losses

ENCODERS_ALONE = frozenset(
    {"blenderbot", "blenderbot-small", "m2m_100", "marian", "pegasus", "pegasus_x", "prophetnet"}
)
"""Model types with a decoder of which the encoder alone gives a text's states, without a class of its own that
transformers lists: those of sentence-transformers."""

SPARSE_NOTE = (
    "full, in place of the block_sparse attention its config.json names: transformers' class gives that up for good at "
    "the first text of at most (5 + 2 * num_random_blocks) * block_size tokens, so a text's states would depend on "
    "those before it; longer texts differ from what a fresh model of transformers computes"
)
"""What an operator is told of `sparse_blocks`."""

TEXT_ENCODER = ("vocab_size", "hidden_size", "num_hidden_layers")
"""What the config of a text encoder states, and that of a model of several kinds of input does not."""

disable_progress_bar()
import_losses()


def _is_ours_to_tell(record: logging.LogRecord) -> bool:
    """Drop what transformers warns of and a runner finds out, judges and reports itself.

    Those are heads that are not used, and attention that cannot be exchanged.
    """
    message = record.getMessage()
    return "LOAD REPORT" not in message and "setting its attention implementation" not in message


logging.getLogger("transformers.modeling_utils").addFilter(_is_ours_to_tell)


def load_config(folder: Path) -> Any:
    """Read the transformers config of a checkpoint; every call gives one of its own.

    Raises:
        ModelLoadError: `CONFIG`: transformers does not know the model type, or the config is wrong.
    """
    try:
        written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        dialect = translate(written)
        if dialect is not None:
            config = AutoConfig.for_model(dialect[0], **dialect[1])
        else:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError, StrictDataclassError) as error:
        raise ModelLoadError(
            "CONFIG",
            "The checkpoint's config.json is not one that transformers reads. Check it, or upgrade transformers.",
        ) from error
    if not all(isinstance(getattr(config, name, None), int) for name in TEXT_ENCODER):
        raise ModelLoadError("CONFIG", f"A model of type {config.model_type!r} is not a text encoder alone.")
    refuse_unheeded(config)
    config.use_cache = False
    if sparse_blocks(config):
        config.attention_type = "original_full"
    return config


def sparse_blocks(config: Any) -> bool:
    """Whether a config asks for BigBird's sparse attention, which its class gives up for good at the first short text.

    Full attention serves, which is what the class computes then, whatever came before a text.
    """
    return getattr(config, "attention_type", None) == "block_sparse"


def load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Load the base model without pooler or head, eager, in evaluation mode.

    Weights that the files have in `dtype` are views of them on a CPU; others are cast, and copied to another device,
    each by itself. A CPU keeps most of half precision as it is in the files where `dtype` is float32: see `halves`.
    Attention runs spelled out (`eager`) until a runner says otherwise.

    Raises:
        ModelLoadError: `CONFIG`, `CORRUPT`: no class, no safetensors, or weights that do not fit the class.
        OutOfDeviceMemory, DeviceLost: The device.
    """
    half = half_of(folder) if device.type == "cpu" and dtype is torch.float32 else None
    if half is not None:
        model = _load(folder, half, device)
        if widen_small_weights(model):
            return model
    return _load(folder, dtype, device)


def _load(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    config = load_config(folder)
    model_class = _model_class(config)
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(
            "CORRUPT", "The checkpoint has no *.safetensors file, and no other format is read. Convert its weights."
        )
    extra = {"add_pooling_layer": False} if _takes(model_class.__init__, "add_pooling_layer") else {}
    with reading_as(model_class.__name__):
        model, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            device_map=placement(device),
            use_safetensors=True,
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
            **extra,
        )
    account_for(model, report)
    return model.eval().requires_grad_(False).to(device)


def placement(device: torch.device) -> dict[str, torch.device] | None:
    """Give the `device_map` with which weights go to `device` one by one, not by way of a whole model on the CPU."""
    return None if device.type == "cpu" else {"": device}


def forward_arguments(model: Any) -> frozenset[str]:
    """Name what the model's `forward` takes."""
    return frozenset(inspect.signature(model.forward).parameters)


@contextmanager
def reading_as(model_class: str) -> Iterator[None]:
    """Tell weights that cannot be read from a device that fails while they are.

    Raises:
        ModelLoadError: `CORRUPT`.
        OutOfDeviceMemory, DeviceLost: The device.
    """
    try:
        yield
    except (ValueError, KeyError, AttributeError, OSError, RuntimeError, SafetensorError) as error:
        with device_errors():
            raise ModelLoadError(
                "CORRUPT", f"The weights could not be read as {model_class}; see the server's log."
            ) from _told_of_conversion(error) or error


def _told_of_conversion(error: Exception) -> Exception | None:
    """Find why weights could not be converted: transformers keeps it as text, for a report that is not logged."""
    for frame, _ in walk_tb(error.__traceback__):
        told = getattr(frame.f_locals.get("loading_info"), "conversion_errors", None)
        if told:
            return RuntimeError("\n".join(told.values()))
    return None


def _model_class(config: Any) -> Any:
    """Pick transformers' class: the encoder alone where the model has a decoder too."""
    if config.model_type in ENCODERS_ALONE and type(config) in MODEL_MAPPING:
        with torch.device("meta"):
            return type(MODEL_MAPPING[type(config)](config).get_encoder())
    for mapping in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ModelLoadError("CONFIG", f"transformers has no text encoder for model type {config.model_type!r}.")


def _takes(function: Any, argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def account_for(model: Any, report: Any) -> None:
    """Refuse weights that do not fit: transformers would start the missing ones at random and drop the others.

    Raises:
        ModelLoadError: `CORRUPT`, naming some of them.
    """
    wrong = sorted(str(key) for key in report["missing_keys"])
    wrong += sorted(str(key[0] if isinstance(key, tuple) else key) for key in report["mismatched_keys"])
    dropped = sorted(key for key in report["unexpected_keys"] if _belongs_to(model, key))
    if not wrong and not dropped:
        return
    problem = "lacks or misshapes" if wrong else "has weights its class does not use:"
    names = wrong or dropped
    raise ModelLoadError(
        "CORRUPT",
        f"The checkpoint does not fit {type(model).__name__}: it {problem} {', '.join(names[:4])}"
        f"{f' and {len(names) - 4} more' if len(names) > 4 else ''}. "
        "Its architecture may need code that comes with the weights.",
    )


def _belongs_to(model: Any, key: str) -> bool:
    """Whether a checkpoint's weight would change what a part of the model computes that the model does have.

    That is one of a module with weights, or one of a numbered layer: of a part the class does not know.
    """
    path, _, kind = key.removeprefix(f"{model.base_model_prefix}.").rpartition(".")
    if kind not in {"weight", "bias"}:
        return False
    module, within_layer = model, False
    for name in path.split(".") if path else ():
        part = dict(module.named_children()).get(name)
        if part is None:
            return within_layer
        within_layer = within_layer or isinstance(module, torch.nn.ModuleList)
        module = part
    return any(True for _ in module.parameters(recurse=False))
