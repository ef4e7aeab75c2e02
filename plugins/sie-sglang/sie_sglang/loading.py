"""Loads a model: tokenizer and prompts here, the weights in an engine that is started for them."""

from __future__ import annotations

from dataclasses import replace

from sie_text.heads import PairHead, PairParts, TextParts
from sie_text.labels import Labels
from sie_text.loading import Stages, matryoshka_dims, needed_card, require_weights, similarities, warm_up
from sie_text.recipe import NotUnderstoodError, read_recipe

from sie_core.contracts import FamilyUnfitError, LoadContext, ModelCard, ModelFacts, ModelLoadError, PluginSetting
from sie_sglang.adapter import EngineLogits, SglangEncoder, SglangReranker
from sie_sglang.claims import unfit, unfit_pairs, weight_bytes
from sie_sglang.engine import REMEDY, Engine, Launch, find_version
from sie_sglang.loras import most_rank
from sie_sglang.options import ANSWER, ENGINE_OPTIONS, PYTHON, START

BATCH_TOKENS = 16_384
"""Tokens that the engine's cache holds beside the longest text: a full batch. The engine queues what does not fit."""
NO_LORA = "its config neither declares `loras` nor sets `max_lora_rank`, so the engine was started without them"
NO_PAIR_LORA = "the engine scores pairs by its base model alone"
DEFAULT_LENGTH = 8_192
"""Tokens of the longest text where the files state none."""


def load(context: LoadContext) -> SglangEncoder:
    """Load an embedder.

    Raises:
        FamilyUnfitError: There is no engine, or it does not compute what the files ask for.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    card = needed_card(context)
    require_weights(card)
    try:
        recipe = read_recipe(card)
    except NotUnderstoodError as reason:
        raise _refused(context, str(reason)) from reason
    if (why := unfit(card, recipe)) is not None:
        raise _refused(context, why)
    version = _version(context)
    stages = Stages(context)
    parts = TextParts(context, recipe)
    parts.preparation(_positions(card))
    length = parts.length or DEFAULT_LENGTH
    # No request may ask for a longer text: the engine's cache is sized for this one, not for all that positions allow.
    preparation = parts.preparation(length)
    stages.done("tokenizer")
    rank = most_rank(context)
    launch = replace(_launch(context, length), lora_rank=rank)
    adapter = SglangEncoder(preparation, _started(launch), int(card.config["hidden_size"]), card, rank)
    stages.done("weights")
    try:
        dims = warm_up(adapter, context)
        notes = {
            "runner": f"sglang {version}",
            "lora": "" if rank else NO_LORA,
            "tokenizer": parts.tokenizer.note,
            "prompts": parts.prompts.note,
        }
        adapter.facts = ModelFacts(
            ("dense",),
            dims=dims,
            similarity=similarities(context, "dense"),
            matryoshka_dims=matryoshka_dims(context.model.config, card, dims["dense"]),
            max_sequence_length=length,
            memory_bytes=_memory_bytes(card, launch),
            takes_lora=rank > 0,
            precision=context.precision,
            notes={name: note for name, note in notes.items() if note},
        )
    except BaseException:
        adapter.unload()
        raise
    stages.done("warm")
    return adapter


def load_pairs(context: LoadContext) -> SglangReranker:
    """Load a reranker made of a language model.

    Raises:
        FamilyUnfitError: There is no engine, or it does not compute what the files ask for.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    stages = Stages(context)
    try:
        parts = PairParts(context)
    except NotUnderstoodError as reason:
        raise _refused(context, str(reason)) from reason
    card, recipe = parts.card, parts.recipe
    if (why := unfit_pairs(card, recipe)) is not None:
        raise _refused(context, why)
    if len(recipe.tokens) != 2:
        raise _refused(
            context, "the engine gives probabilities, so a score needs two tokens, `true_token` and `false_token`"
        )
    version = _version(context)
    positions = _positions(card)
    length = min(context.model.config.max_sequence_length or DEFAULT_LENGTH, positions or DEFAULT_LENGTH)
    preparation = parts.preparation(length)
    stages.done("tokenizer")
    launch = replace(_launch(context, length), embeds=False)
    logits = EngineLogits()
    head = PairHead(logits, Labels.of(card, logits.labels, recipe.activation))
    match, no_match = recipe.tokens
    adapter = SglangReranker(context.model.id, preparation, head, _started(launch), (match, no_match))
    stages.done("weights")
    try:
        adapter.facts = parts.facts(
            adapter,
            head,
            {"runner": f"sglang {version}", "lora": NO_PAIR_LORA},
            memory_bytes=_memory_bytes(card, launch),
            precision=context.precision,
        )
    except BaseException:
        adapter.unload()
        raise
    stages.done("warm")
    return adapter


def _refused(context: LoadContext, why: str) -> FamilyUnfitError:
    return FamilyUnfitError(f"{context.model.id} is not served by an SGLang engine: {why.rstrip('.')}.")


def _version(context: LoadContext) -> str:
    """Return the version of sglang that the setting names."""
    if not PYTHON.value():
        raise FamilyUnfitError(
            f"{context.model.id} is not served by an SGLang engine: SIE_SGLANG_PYTHON is not set. {REMEDY}"
        )
    return find_version(PYTHON.value())


def _launch(context: LoadContext, length: int) -> Launch:
    """Describe the engine of an embedder whose longest text has `length` tokens."""
    chosen = context.model.profile.loadtime
    return Launch(
        PYTHON.value(),
        context.model.id,
        needed_card(context).path,
        context.device.kind,
        context.device.index,
        context.precision,
        length,
        length + BATCH_TOKENS,
        {option.name: chosen[option.name] for option in ENGINE_OPTIONS if chosen.get(option.name) is not None},
        context.model.config.trust_remote_code,
    )


def _started(launch: Launch) -> Engine:
    return Engine(launch, start_s=_seconds(START), answer_s=_seconds(ANSWER))


def _memory_bytes(card: ModelCard, launch: Launch) -> int:
    return (weight_bytes(card) or 0) + launch.cached_tokens * _cached_bytes(card)


def _positions(card: ModelCard) -> int | None:
    """The tokens that the model's positions allow, if its files state them."""
    stated = card.config.get("max_position_embeddings")
    return stated if isinstance(stated, int) else None


def _cached_bytes(card: ModelCard) -> int:
    """The bytes of keys and values of one token, in half precision."""
    config = card.config
    heads = int(config.get("num_attention_heads", 1))
    size = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    return 2 * 2 * int(config["num_hidden_layers"]) * int(config.get("num_key_value_heads") or heads) * size


def _seconds(setting: PluginSetting) -> float:
    value = setting.value()
    try:
        return float(value)
    except ValueError:
        raise ModelLoadError("CONFIG", f"{setting.variable}={value!r} is no number of seconds.") from None
