"""Loads the parts of a text encoder and brings their facts together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sie_core.contracts import LoadContext, ModelFacts, device_errors
from sie_pytorch.facts import (
    declared_outputs,
    matryoshka_dims,
    missing_outputs,
    needed_card,
    sequence_lengths,
    similarities,
)
from sie_pytorch.heads import build_heads
from sie_pytorch.preparation import Filling, Preparation
from sie_pytorch.prompts import Prompts
from sie_pytorch.recipe import Recipe, read_recipe
from sie_pytorch.running import runner_for
from sie_pytorch.stages import Stages, disable_progress_bars
from sie_pytorch.tokenizer import TextTokenizer, filling_token, load_tokenizer
from sie_pytorch.warming import warm_up
from sie_pytorch.weights import require_weights

if TYPE_CHECKING:
    from sie_pytorch.adapter import TextEncoder


def load_text_encoder(family: type[TextEncoder], context: LoadContext) -> TextEncoder:
    """Load tokenizer, runner and heads, and run one text through all.

    Raises:
        ModelLoadError: With the failure's class.
        NotUnderstoodError: One of the parts cannot serve the model.
        OutOfDeviceMemory: The device has no room.
    """
    card, config = needed_card(context), context.model.config
    require_weights(card)
    recipe = read_recipe(card, declared_outputs(config), config.pickles)
    prompts = Prompts.of(card, dict(recipe.prompts))
    stages = Stages(context)
    disable_progress_bars()
    tokenizer = load_tokenizer(card, recipe, trust_remote_code=config.trust_remote_code)
    filling = _read_filling(recipe, tokenizer)
    stages.done("tokenizer")
    runner = runner_for(context, card, fills_up=filling is not None and not filling.attended)
    stages.done("weights")
    device = torch.device(str(context.device))
    with device_errors():
        info = runner.info
        heads = build_heads(recipe, card.path, tokenizer, info.hidden_size, info.precision, device)
    lengths, length_note = sequence_lengths(config, card, recipe, tokenizer, info.max_sequence_length)
    preparation = Preparation(
        context.model.id,
        tokenizer,
        prompts,
        lengths,
        pools_prompt=recipe.pooling is None or recipe.pooling.include_prompt,
        takes_ids=config.accept_token_ids,
        filling=filling,
    )
    gives_types = info.embeds_types and tokenizer.takes_types
    encoder = family(preparation, runner, heads, device, context.threads, gives_types=gives_types)
    dims = warm_up(encoder, context, tuple(heads))
    stages.done("warm")
    notes = {"prompts": prompts.note, "max_sequence_length": length_note, "outputs": missing_outputs(config, heads)}
    notes |= dict(recipe.notes)
    encoder.facts = ModelFacts(
        outputs=tuple(heads),
        dims=dims,
        similarity=similarities(context, *heads),
        matryoshka_dims=matryoshka_dims(config, card, dims["dense"]) if "dense" in dims else (),
        max_sequence_length=lengths.default,
        memory_bytes=info.memory_bytes + sum(head.memory_bytes for head in heads.values()),
        precision=info.precision,
        takes_lora=bool(runner.linear_shapes),
        notes={**info.notes, **{name: note for name, note in notes.items() if note}},
    )
    return encoder


def _read_filling(recipe: Recipe, tokenizer: TextTokenizer) -> Filling | None:
    expansion = recipe.multivector and recipe.multivector.expansion
    if not expansion:
        return None
    return Filling(expansion.length, filling_token(tokenizer, expansion.token), expansion.attended)
