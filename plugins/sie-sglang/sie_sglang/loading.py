"""Loads an embedder: tokenizer and prompts here, the weights in an engine that is started for them."""

from __future__ import annotations

from sie_text.heads import TextParts
from sie_text.loading import Stages, matryoshka_dims, needed_card, require_weights, similarities, warm_up
from sie_text.recipe import NotUnderstoodError, read_recipe

from sie_core.contracts import FamilyUnfitError, LoadContext, ModelCard, ModelFacts, ModelLoadError, PluginSetting
from sie_sglang.adapter import SglangEncoder
from sie_sglang.claims import EMBEDDERS, unfit, weight_bytes
from sie_sglang.engine import REMEDY, Engine, Launch, find_version
from sie_sglang.options import ANSWER, ENGINE_OPTIONS, PYTHON, START

BATCH_TOKENS = 16_384
"""Tokens that the engine's cache holds beside the longest text: a full batch. The engine queues what does not fit."""
DEFAULT_LENGTH = 8_192
"""Tokens of the longest text where the files state none."""


def load(context: LoadContext) -> SglangEncoder:
    """Load the model.

    Raises:
        FamilyUnfitError: There is no engine, or it does not compute what the files ask for.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    card, name = needed_card(context), context.model.id
    require_weights(card)
    try:
        recipe = read_recipe(card)
    except NotUnderstoodError as reason:
        raise FamilyUnfitError(f"{name} is not served by an SGLang engine: {reason}.") from reason
    why = unfit(card, recipe)
    if why is None and not set(card.architectures[:1]) & EMBEDDERS:
        why = f"it has no embedder for {', '.join(card.architectures) or 'a checkpoint that names no class'}"
    if why is not None:
        raise FamilyUnfitError(f"{name} is not served by an SGLang engine: {why}.")
    python = PYTHON.value()
    if not python:
        raise FamilyUnfitError(f"{name} is not served by an SGLang engine: SIE_SGLANG_PYTHON is not set. {REMEDY}")
    stages = Stages(context)
    version = find_version(python)
    parts = TextParts(context, recipe)
    parts.preparation(_positions(card))
    length = parts.length or DEFAULT_LENGTH
    # No request may ask for a longer text: the engine's cache is sized for this one, not for all that positions allow.
    preparation = parts.preparation(length)
    stages.done("tokenizer")
    chosen = context.model.profile.loadtime
    launch = Launch(
        python,
        name,
        card.path,
        context.device.kind,
        context.device.index,
        context.precision,
        length,
        length + BATCH_TOKENS,
        {option.name: chosen[option.name] for option in ENGINE_OPTIONS if chosen.get(option.name) is not None},
        context.model.config.trust_remote_code,
    )
    engine = Engine(launch, start_s=_seconds(START), answer_s=_seconds(ANSWER))
    stages.done("weights")
    adapter = SglangEncoder(preparation, engine, int(card.config["hidden_size"]))
    try:
        dims = warm_up(adapter, context)
        stages.done("warm")
        notes = {
            "runner": f"sglang {version}",
            "lora": "the family passes no LoRA adapters to its engine",
            "tokenizer": parts.tokenizer.note,
            "prompts": parts.prompts.note,
        }
        adapter.facts = ModelFacts(
            ("dense",),
            dims=dims,
            similarity=similarities(context, "dense"),
            matryoshka_dims=matryoshka_dims(context.model.config, card, dims["dense"]),
            max_sequence_length=length,
            memory_bytes=(weight_bytes(card) or 0) + launch.cached_tokens * _cached_bytes(card),
            precision=context.precision,
            notes={name: note for name, note in notes.items() if note},
        )
    except BaseException:
        adapter.unload()
        raise
    return adapter


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
