"""Loads a model of images and texts: recipe, tokenizer, image processor, towers, and a warm-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sie_text.encode import TextPreparation
from sie_text.lengths import sequence_lengths
from sie_text.loading import (
    Stages,
    disable_progress_bars,
    matryoshka_dims,
    needed_card,
    refuse_pickled,
    similarities,
    warm_up,
)
from sie_text.prompts import Prompts
from sie_text.recipe import NotUnderstoodError, VisionRecipe, heed_auto_map, read_vision_recipe
from sie_text.tokenizer import TextTokenizer, load_any_tokenizer

from sie_core.contracts import Item, LoadContext, ModelFacts, ModelLoadError, Task, Unit, device_errors
from sie_pytorch.families.vision.adapter import IMAGE, Row, VisionEncoder
from sie_pytorch.families.vision.padding import Padding, padding
from sie_pytorch.families.vision.pixels import PixelReader, load_pixel_reader
from sie_pytorch.families.vision.towers import Towers, load_config, load_model
from sie_pytorch.forward.checkpoint.precision import Precision, precisions
from sie_pytorch.forward.transfers import Transfers


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a checkpoint that are read before its weights."""

    recipe: VisionRecipe
    config: Any
    tokenizer: TextTokenizer
    padding: Padding
    reader: PixelReader
    notes: Mapping[str, str]


def load(context: LoadContext) -> VisionEncoder:
    """Load a model of the family `pytorch-vision`.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    disable_progress_bars()
    refuse_pickled(needed_card(context))
    stages = Stages(context)
    try:
        parts = _read(context)
    except NotUnderstoodError as reason:
        why = str(reason).rstrip(".")
        raise ModelLoadError("CONFIG", f"{context.model.id} is not served as images and texts: {why}.") from reason
    stages.done("tokenizer")
    device = torch.device(str(context.device))
    for precision in _precisions(context, device):
        with device_errors():
            model = load_model(
                parts.recipe.card.path, parts.config, precision.weights, device, context.attention_backend
            )
            stages.done("weights")
            encoder, finite = _assemble(context, parts, model, device, precision)
        stages.done("warm")
        if finite:
            return encoder
        encoder.unload()
    raise ModelLoadError("CORRUPT", f"{context.model.id} gives NaN or infinity for a text or an image.")


def _read(context: LoadContext) -> Parts:
    recipe = read_vision_recipe(needed_card(context))
    config = load_config(recipe.card.path)
    notes = heed_auto_map(context, config.to_dict(), runs="nowhere")
    tokenizer = replace(load_any_tokenizer(recipe.card, recipe.transformer), embedded=config.text_config.vocab_size)
    filling = padding(tokenizer, config.model_type, config.text_config.max_position_embeddings)
    return Parts(
        recipe, config, tokenizer, filling, load_pixel_reader(recipe.card, config.vision_config.image_size), notes
    )


def _precisions(context: LoadContext, device: torch.device) -> Iterator[Precision]:
    """Yield the precisions to try: the requested one on an accelerator, float32 on a CPU."""
    return precisions("float32" if device.type == "cpu" else context.precision, device)


def _assemble(
    context: LoadContext,
    parts: Parts,
    model: Any,
    device: torch.device,
    precision: Precision,
) -> tuple[VisionEncoder, bool]:
    """Assemble the parts and run a text and an image; return whether both results are finite."""
    config, card, name = context.model.config, parts.recipe.card, context.model.id
    positions = parts.config.text_config.max_position_embeddings
    lengths, length_note = sequence_lengths(config, card, parts.recipe.transformer, parts.tokenizer, positions)
    prompts = Prompts.of(needed_card(context))
    transfers = Transfers(device)
    towers = Towers(model, parts.reader.levels, transfers)
    encoder = VisionEncoder(
        name,
        TextPreparation(name, parts.tokenizer, prompts, lengths, pools_prompt=True, takes_ids=config.accept_token_ids),
        parts.padding,
        parts.reader,
        towers,
        transfers,
        normalizes=parts.recipe.normalizes,
        threads=context.threads,
    )
    torch.set_num_threads(context.threads)
    dims = warm_up(encoder, context)["dense"]
    seen = _see(encoder, parts.reader.size)
    if len(seen) != dims:
        raise ModelLoadError("CONFIG", f"Its texts have {dims} dimensions and its images {len(seen)}: no one space.")
    notes = {
        **parts.notes,
        "runner": "transformers, padded batches",
        "tokenizer": parts.tokenizer.note,
        "prompts": prompts.note,
        "max_sequence_length": length_note,
        "padding": _padding_note(parts.padding),
        "precision": "it overflows in float16" if precision.after_overflow else precision.note,
    }
    encoder.facts = ModelFacts(
        outputs=("dense",),
        inputs=("text", "image"),
        dims={"dense": dims},
        similarity=similarities(context, "dense") if needed_card(context).modules else {},
        matryoshka_dims=matryoshka_dims(config, card, dims),
        max_sequence_length=lengths.default,
        memory_bytes=towers.memory_bytes,
        precision=str(precision.compute).removeprefix("torch."),
        notes={name: note for name, note in notes.items() if note},
    )
    return encoder, bool(np.isfinite(seen).all() and np.isfinite(_read_one(encoder)).all())


def _see(encoder: VisionEncoder, size: int) -> Any:
    """Run one grey picture through the tower of images; return its vector."""
    grey = np.full((3, size, size), 128, dtype=np.uint8)
    unit = Unit(0, 1, IMAGE, payload=Row(grey, False))
    (output,) = encoder.finish([unit], encoder.run([unit]))
    return output.dense


def _read_one(encoder: VisionEncoder) -> Any:
    """Run one text through the tower of texts; return its vector."""
    units = list(encoder.prepare([Item(text="warm")], Task("encode", ("dense",))))
    (output,) = encoder.finish(units, encoder.run(units))
    return output.dense


def _padding_note(filling: Padding) -> str | None:
    if filling.length is None:
        return None
    return (
        f"every text is filled up to {filling.length} tokens, as the model was trained; sentence-transformers may fill "
        "it up to the longest of a call"
    )
