"""Loads a checkpoint with the gliner library: from local files, from safetensors, without code that comes with them.

It knows files and gliner's classes, no request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError, is_pickled
from sie_gliner.claims import CONFIG_FILE

WEIGHTS_FILE = "model.safetensors"
SERVED = {
    "UniEncoderSpanGLiNER",
    "UniEncoderTokenGLiNER",
    "BiEncoderSpanGLiNER",
    "BiEncoderTokenGLiNER",
    "UniEncoderSpanRelexGLiNER",
    "UniEncoderTokenRelexGLiNER",
}
"""gliner's classes of checkpoints that score the labels they are given. The others write labels themselves, or read a
stream."""
FETCHING_SPLITTERS = {"stanza", "hanlp", "universal"}
"""Ways to split words that fetch models of their own from elsewhere."""
REMEDY = (
    "Convert the checkpoint once, where you trust it and there is a network: "
    "GLiNER.from_pretrained(name).save_pretrained(folder, safe_serialization=True); then serve the folder."
)
_BUFFERS = ("position_ids", "token_type_ids")
"""Tensors that transformers once saved and now computes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint, on the CPU in float32."""

    gliner: Any
    """gliner's own object: config, processor, decoder, model."""
    model: nn.Module
    """What computes."""
    note: str | None
    """What of the file of weights was not used."""

    @property
    def config(self) -> Any:
        """What `gliner_config.json` says, completed by gliner."""
        return self.gliner.config

    @property
    def kind(self) -> str:
        """The name of gliner's class."""
        return type(self.gliner).__name__


def load_checkpoint(context: LoadContext) -> Checkpoint:
    """Load the checkpoint of `context.card`.

    Raises:
        ModelLoadError: `CONFIG` where it is of no kind served or needs what is not in its folder, `CORRUPT` where a
            file cannot be read or lacks a tensor, `DEPENDENCY` where a package is missing.
    """
    card = context.card
    if card is None:
        raise ModelLoadError("CONFIG", f"{context.model.id} has no weights: give its config `hf_id` or `weights_path`.")
    require_safetensors(card)
    config = read_config(card.path / CONFIG_FILE)
    refuse_code(config, trusted=context.model.config.trust_remote_code)
    refuse_fetching(card, config)
    gliner = _from_files(card.path)
    if type(gliner).__name__ not in SERVED or config.get("precomputed_prompts_mode"):
        raise ModelLoadError(
            "CONFIG",
            f"It is a {type(gliner).__name__}, and what it labels is not for a request to say; uni- and bi-encoders "
            "that take labels are served.",
        )
    return Checkpoint(gliner, gliner.model.eval(), check_tensors(card.path / WEIGHTS_FILE, gliner.model))


def require_safetensors(card: ModelCard) -> None:
    """Refuse a checkpoint without its weights in safetensors.

    Raises:
        ModelLoadError: `CONFIG`, naming the file and the remedy.
    """
    if WEIGHTS_FILE in card.files:
        return
    for name in card.files:
        if is_pickled(name):
            raise ModelLoadError(
                "CONFIG",
                f"{name}: these weights are a Python pickle, which can run code when it is read, and there is no "
                f"{WEIGHTS_FILE} beside it. {REMEDY}",
            )
    raise ModelLoadError("CONFIG", f"The folder of weights holds no {WEIGHTS_FILE}.")


def read_config(file: Path) -> dict[str, Any]:
    """Read a `gliner_config.json`.

    Raises:
        ModelLoadError: `CORRUPT`: it is missing, or no JSON object.
    """
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read as JSON.") from error
    if not isinstance(config, dict):
        raise ModelLoadError("CORRUPT", f"{file.name} must hold a JSON object.")
    return config


def refuse_code(config: Mapping[str, Any], *, trusted: bool) -> None:
    """Refuse a checkpoint whose encoders name code of their own: gliner would run it unasked.

    Raises:
        ModelLoadError: `CONFIG`, naming where.
    """
    if trusted:
        return
    for name, value in config.items():
        if isinstance(value, dict) and value.get("auto_map"):
            raise ModelLoadError(
                "CONFIG",
                f"{CONFIG_FILE}: {name} names code that comes with the weights; if you trust it, set "
                "`trust_remote_code: true` in the model's config.",
            )


def refuse_fetching(card: ModelCard, config: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that gliner would complete from elsewhere, with files or with code nobody looked at.

    Raises:
        ModelLoadError: `CONFIG`, naming what is missing.
    """
    lacking = ["encoder_config"] if not config.get("encoder_config") else []
    if config.get("labels_encoder") and not config.get("labels_encoder_config"):
        lacking.append("labels_encoder_config")
    if lacking:
        raise ModelLoadError("CONFIG", f"{CONFIG_FILE} holds no {' and no '.join(lacking)}. {REMEDY}")
    needed = ["tokenizer_config.json"] + ["labels_tokenizer/tokenizer_config.json"] * bool(config.get("labels_encoder"))
    for name in needed:
        if name not in card.files:
            raise ModelLoadError("CONFIG", f"The folder of weights holds no {name}. {REMEDY}")
    splitter = config.get("words_splitter_type")
    if splitter in FETCHING_SPLITTERS:
        raise ModelLoadError("CONFIG", f"It splits words with {splitter!r}, which fetches models of its own.")


def check_tensors(file: Path, model: nn.Module) -> str | None:
    """Compare a file of weights with the tensors of the model; gliner passes over what it does not find.

    Raises:
        ModelLoadError: `CORRUPT`: the file lacks a tensor, which gliner has filled with random numbers.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        held = {*tensors.keys(), *(tensors.metadata() or {})}
    needed = model.state_dict().keys()
    if lacking := sorted(name for name in needed if name not in held and not name.endswith(_BUFFERS)):
        raise ModelLoadError("CORRUPT", f"{file.name} lacks {len(lacking)} tensors of the model, such as {lacking[0]}.")
    with safe_open(file, framework="pt") as tensors:
        unused = sorted(name for name in tensors.keys() if name not in needed and not name.endswith(_BUFFERS))  # noqa: SIM118
    return f"{len(unused)} of {file.name} that the model does not have, such as {unused[0]}" if unused else None


def _from_files(folder: Path) -> Any:
    """Let gliner load a folder; it may fail in any way."""
    with _quiet():
        try:
            from gliner import GLiNER

            return GLiNER.from_pretrained(str(folder), local_files_only=True, map_location="cpu")
        except ImportError as error:
            raise ModelLoadError(
                "DEPENDENCY", f"The checkpoint needs a package that is not installed: {error.name or 'see the log'}."
            ) from error
        except Exception as error:
            raise ModelLoadError(
                "CORRUPT", f"gliner cannot load the checkpoint ({type(error).__name__}); see the log."
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars, and remarks on embeddings that are about to be replaced, out of the server's log."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    remarks = logging.getLogger("transformers.modeling_utils")
    level = remarks.level
    remarks.setLevel(logging.ERROR)
    try:
        yield
    finally:
        remarks.setLevel(level)
