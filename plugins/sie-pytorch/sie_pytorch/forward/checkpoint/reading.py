"""Loads a text encoder's base model from a checkpoint folder: only safetensors, every weight accounted for."""

from __future__ import annotations

import copy
import inspect
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from sie_text.architectures import NONE, Records, find_architecture, named_by, translate
from transformers import AutoConfig, AutoModel
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING
from transformers.utils.logging import disable_progress_bar

from sie_core.contracts import ModelLoadError, device_errors
from sie_pytorch.forward.checkpoint.half_precision import half_of, widen_small_weights
from sie_pytorch.forward.checkpoint.lean_import import import_losses
from sie_pytorch.forward.checkpoint.unheeded import refuse_unheeded

ENCODERS_ALONE = frozenset(
    {"blenderbot", "blenderbot-small", "m2m_100", "marian", "pegasus", "pegasus_x", "prophetnet"}
)
"""Model types with a decoder of which only the encoder runs, and for which transformers lists no encoder class: those
of sentence-transformers.
"""

SPARSE_NOTE = (
    "full, in place of the block_sparse attention its config.json names: transformers' class gives that up for good at "
    "the first text of at most (5 + 2 * num_random_blocks) * block_size tokens, so a text's states would depend on "
    "those before it; longer texts differ from what a fresh model of transformers computes"
)
"""Note for operators on `sparse_blocks`."""

TEXT_ENCODER = ("vocab_size", "hidden_size", "num_hidden_layers")
"""Keys in the config of a text encoder that a multimodal model's config lacks."""

disable_progress_bar()
import_losses()


class _Reports(logging.Filter):
    """Drops warnings of transformers about matters that are judged and reported here, and keeps the last report on a
    load.

    The dropped ones concern unused heads, and attention that cannot be exchanged. Reasons why weights could not be
    converted are in the report alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest = ""
        self._logger = logging.getLogger("transformers.modeling_utils")
        # The report is needed even if the log level is ERROR. The level is just below WARNING: at WARNING transformers
        # lists every layer as "not sharded".
        self._logger.setLevel(logging.WARNING - 1)
        self._logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record pass to the log; called by `logging`."""
        message = record.getMessage()
        if "LOAD REPORT" in message:
            self.latest = message
            return False
        assert self._logger.parent is not None
        wanted = record.levelno >= self._logger.parent.getEffectiveLevel()
        return wanted and "setting its attention implementation" not in message


_REPORTS = _Reports()


@dataclass(frozen=True, slots=True)
class EncoderPart:
    """A text encoder inside the checkpoint of a larger model."""

    config: Mapping[str, Any]
    """The content of its `config.json`."""
    prefix: str
    """Prefix of the names of its tensors, including the dot."""


def load_config(folder: Path, part: EncoderPart | None = None, records: Records = NONE) -> Any:
    """Read the transformers config of a checkpoint, or that of its `part`; every call returns a new one.

    Raises:
        ModelLoadError: `CONFIG`: transformers does not know the model type, or the config is wrong. `DEPENDENCY`: what
            the record of the model type names cannot be imported.
    """
    try:
        written = dict(part.config) if part else json.loads((folder / "config.json").read_text(encoding="utf-8"))
        register_class(written.get("model_type"), records)
        dialect = translate(written, records)
        if dialect is not None:
            config = AutoConfig.for_model(dialect[0], **dialect[1])
        elif part is not None:
            config = AutoConfig.for_model(**copy.deepcopy(written))
        else:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError, StrictDataclassError) as error:
        raise ModelLoadError(
            "CONFIG",
            "The encoder's config is not one that transformers reads. Check it, or upgrade transformers."
            if part
            else "The checkpoint's config.json is not one that transformers reads. Check it, or upgrade transformers.",
        ) from error
    if not all(isinstance(getattr(config, name, None), int) for name in TEXT_ENCODER):
        raise ModelLoadError("CONFIG", f"A model of type {config.model_type!r} is not a text encoder alone.")
    refuse_unheeded(config)
    config.use_cache = False
    if sparse_blocks(config):
        config.attention_type = "original_full"
    return config


def register_class(model_type: object, records: Records) -> None:
    """Have transformers' `AutoConfig` and `AutoModel` know the class that a record names for a model type.

    Raises:
        ModelLoadError: `DEPENDENCY`: it cannot be imported. `CONFIG`: its config class is of another model type.
    """
    record = find_architecture(model_type, records)
    record = None if record is None else find_architecture(record.served_as, records)
    if record is None or record.model is None:
        return
    model_class = named_by(record, record.model)
    config_class = model_class.config_class
    if config_class.model_type != record.name:
        raise ModelLoadError(
            "CONFIG",
            f"The record of the architecture {record.name!r} names {record.model}, whose config class states the "
            f"model_type {config_class.model_type!r}. Both must be the same.",
        )
    AutoConfig.register(record.name, config_class, exist_ok=True)
    AutoModel.register(config_class, model_class, exist_ok=True)


def sparse_blocks(config: Any) -> bool:
    """Whether a config asks for BigBird's sparse attention, which its class gives up permanently at the first short
    text.

    Full attention serves: the class would use it once it has seen a short text.
    """
    return getattr(config, "attention_type", None) == "block_sparse"


def load_model(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    part: EncoderPart | None = None,
    records: Records = NONE,
) -> Any:
    """Load the base model, or that of `part`, without pooler or head, eager, in evaluation mode.

    On a CPU, weights stored in `dtype` are views of the files. Others are cast, and copied to another device, one by
    one. A CPU keeps most half-precision weights as stored if `dtype` is float32: see `half_precision`. Attention is
    transformers' `eager` until a runner sets another.

    Raises:
        ModelLoadError: `CONFIG`, `CORRUPT`: no class, no safetensors, or weights that do not fit the class.
        OutOfDeviceMemory, DeviceLost: The device.
    """
    half = half_of(folder) if device.type == "cpu" and dtype is torch.float32 else None
    if half is not None:
        model = _load(folder, half, device, part, records)
        if widen_small_weights(model):
            return model
    return _load(folder, dtype, device, part, records)


def _load(folder: Path, dtype: torch.dtype, device: torch.device, part: EncoderPart | None, records: Records) -> Any:
    config = load_config(folder, part, records)
    model_class = _model_class(config)
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(
            "CORRUPT", "The checkpoint has no *.safetensors file, and no other format is read. Convert its weights."
        )
    extra = {"add_pooling_layer": False} if _takes(model_class.__init__, "add_pooling_layer") else {}
    with reading_as(model_class.__name__):
        source = {"state_dict": read_part(folder, part.prefix)} if part else {"use_safetensors": True}
        model, report = model_class.from_pretrained(
            None if part else folder,
            config=config,
            dtype=dtype,
            device_map=placement(device),
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
            **source,
            **extra,
        )
    account_for(model, report)
    return model.eval().requires_grad_(False).to(device)


def read_part(folder: Path, prefix: str) -> dict[str, torch.Tensor]:
    """Read the tensors whose names begin with `prefix`, by the rest of their names, as views of the files.

    A tensor that was left out for being the same as another, which a file's metadata then says, is found too.
    """
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names = {name: name for name in tensors.keys()}  # noqa: SIM118 - no mapping
            names |= {left_out: kept for left_out, kept in (tensors.metadata() or {}).items() if kept in names}
            wanted = {name: kept for name, kept in names.items() if name.startswith(prefix)}
            found |= {name.removeprefix(prefix): tensors.get_tensor(kept) for name, kept in wanted.items()}
    return found


def placement(device: torch.device) -> dict[str, torch.device] | None:
    """Return the `device_map` that copies weights to `device` one by one, without a whole model on the CPU."""
    return None if device.type == "cpu" else {"": device}


def forward_arguments(model: Any) -> frozenset[str]:
    """Return the arguments of the model's `forward`."""
    return frozenset(inspect.signature(model.forward).parameters)


@contextmanager
def reading_as(model_class: str) -> Iterator[None]:
    """Distinguish unreadable weights from a device that fails during the read.

    Raises:
        ModelLoadError: `CORRUPT`.
        OutOfDeviceMemory, DeviceLost: The device.
    """
    _REPORTS.latest = ""
    try:
        yield
    except (ValueError, KeyError, AttributeError, OSError, RuntimeError, SafetensorError) as error:
        cause = RuntimeError(_REPORTS.latest) if _REPORTS.latest else error
        with device_errors():
            raise ModelLoadError(
                "CORRUPT", f"The weights could not be read as {model_class}; see the server's log."
            ) from cause


def _model_class(config: Any) -> Any:
    """Pick transformers' class: the encoder alone if the model also has a decoder."""
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
        ModelLoadError: `CORRUPT`, naming some of the weights.
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
    """Whether a checkpoint's weight would change the result of a part that the model has.

    That is a weight of a module that has weights, or of a numbered layer; others belong to a part that the class does
    not know.
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
