"""Reads the files of a model that scores pairs: the source of its logits and their conversion to scores.

The rules follow `CrossEncoder` (sentence-transformers 6). It reads the card alone and imports no model library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, cast, get_args

from sie_core.contracts import ModelCard, ModuleCard
from sie_text.recipe.encoders.dense import ACTIVATIONS, pooling_settings, step_settings
from sie_text.recipe.settings import HeadSettings, NotUnderstoodError, PoolingSettings, TransformerSettings
from sie_text.recipe.transformer import transformer_settings

PairTruncation = Literal["longest_first", "only_first", "only_second"]
"""transformers' names: which text of a pair is cut."""
Source = Literal["classifier", "modules", "vocabulary"]
"""A class for sequence classification, Pooling and Dense modules, or the vocabulary of a causal language model."""

_ACTIVATIONS = {name.rsplit(".", 1)[-1]: name for name in ACTIVATIONS}
CHAT = "chat_template"
"""The key of `processing_kwargs` with the values for a chat template."""
RENDERING = frozenset({"tokenize", "truncation", "max_length", "padding", "return_tensors", "chat_template"})
"""Arguments of the renderer that are no values for the template."""
_UNNAMED_LABELS = 2  # transformers' own number if a config.json has neither `id2label` nor `num_labels`
_SHOWN_LABELS = 8


@dataclass(frozen=True, slots=True)
class PairRecipe:
    """A model that reads two texts at once."""

    source: Source
    reason: str
    """The reason for operators."""
    transformer: TransformerSettings = field(default_factory=TransformerSettings)
    _: KW_ONLY
    truncation: PairTruncation = "longest_first"
    activation: str | None = None
    """A class of `torch.nn`; None if the files name none, and the number of labels decides."""
    note: str | None = None
    """The parts of the files that are ignored."""
    pooling: PoolingSettings | None = None
    steps: tuple[HeadSettings, ...] = ()
    """For `modules`: the pooling, and the layers after it."""
    tokens: tuple[int, ...] = ()
    """For `vocabulary`: the token whose logit counts, and optionally the token whose logit is subtracted; empty if the
    files do not say.
    """
    message_format: Literal["flat", "structured", "auto"] | None = None
    """Format of the two texts for the tokenizer's chat template; None without a chat template."""
    chat_arguments: tuple[tuple[str, Any], ...] = ()
    """Values for the chat template, such as `add_generation_prompt`."""
    answers: tuple[str, ...] = ()
    """For `vocabulary`: the same two tokens by their text, where the files name them so."""
    single_texts: bool = False
    """Whether nothing in the files says that a logit is the score of a pair, so only a profile's `score_label` can."""


def read_pair_recipe(card: ModelCard) -> PairRecipe:
    """Read the recipe of a model of pairs from its card.

    Raises:
        NotUnderstoodError: Its files do not describe a model that scores pairs, or ask for something else.
    """
    activation, note = _activation(card)
    recipe = _declared(card) if card.modules else _plain(card)
    return replace(recipe, activation=activation, note=note)


def is_cross_encoder(card: ModelCard) -> bool:
    """Whether sentence-transformers' files describe one of its cross-encoders."""
    return card.sentence_transformers.get("model_type") == "CrossEncoder"


def entailment_label(numbers: Mapping[str, int]) -> int | None:
    """Find the label that means entailment among names and their numbers; None if there is none."""
    return next((number for name, number in numbers.items() if name.lower().startswith("entail")), None)


def entails(card: ModelCard) -> bool:
    """Whether one of several labels of a classifier says that the second text follows from the first."""
    names, numbers = card.config.get("id2label"), card.config.get("label2id")
    if not isinstance(numbers, Mapping):
        numbers = {str(name): index for index, name in enumerate(names.values())} if isinstance(names, Mapping) else {}
    return len(numbers) > 1 and entailment_label(numbers) is not None


def _plain(card: ModelCard) -> PairRecipe:
    """Read a checkpoint without `modules.json`, as `CrossEncoder` does: by the class it was saved from."""
    saved = card.architectures[0] if card.architectures else ""
    if saved.endswith("ForCausalLM"):
        return PairRecipe("vocabulary", f"its config.json names {saved}, served as a reranker", answers=_answers(card))
    if saved.endswith("ForSequenceClassification"):
        labels = _labels(card)
        if len(labels) <= 1 or entails(card) or is_cross_encoder(card) or _activation_path(card) is not None:
            return PairRecipe("classifier", f"its config.json names {saved}, which scores a pair of texts")
        shown = ", ".join(labels[:_SHOWN_LABELS]) + (", …" if len(labels) > _SHOWN_LABELS else "")
        reason = f"its config.json names {saved} with the labels {shown}, which classifies single texts"
        return PairRecipe("classifier", reason, single_texts=True)
    raise NotUnderstoodError(f"config.json names {saved or 'no class'}, which scores no pair of texts")


def _labels(card: ModelCard) -> list[str]:
    """List the labels of a plain classifier; empty if its files are not here and nothing states them."""
    names, count = card.config.get("id2label"), card.config.get("num_labels")
    if isinstance(names, Mapping) and names:
        return [str(name) for name in names.values()]
    if not isinstance(count, int):
        count = _UNNAMED_LABELS if any(name.endswith(".safetensors") for name in card.files) else 0
    return [f"LABEL_{number}" for number in range(count)]


def _answers(card: ModelCard) -> tuple[str, ...]:
    """Read the tokens a language model answers with: vLLM's `classifier_from_token`, `[no match, match]` or one."""
    named = card.config.get("classifier_from_token")
    if isinstance(named, list) and 0 < len(named) <= 2 and all(isinstance(each, str) and each for each in named):
        return tuple(named[::-1])
    return ()


def _declared(card: ModelCard) -> PairRecipe:
    """Read `modules.json`."""
    kinds = [module.kind for module in card.modules]
    chain = " → ".join(kinds)
    for module in card.modules:
        if not module.type.startswith("sentence_transformers."):
            raise NotUnderstoodError(f"modules.json names {module.type}, a class of its own")
    if not is_cross_encoder(card) or kinds[0] != "Transformer" or card.modules[0].path != card.path:
        raise NotUnderstoodError(f"modules.json chains {chain}, which is no cross-encoder's")
    config = card.modules[0].config
    recipe = PairRecipe("classifier", f"its modules.json chains {chain} of a cross-encoder")
    task = config.get("transformer_task")
    if kinds == ["Transformer"] and task == "sequence-classification":
        recipe = replace(recipe, message_format=_message_format(config))
    elif kinds == ["Transformer", "LogitScore"] and task == "text-generation":
        tokens = _tokens(card.modules[1])
        recipe = replace(recipe, source="vocabulary", tokens=tokens, message_format=_message_format(config))
    elif kinds[1:2] == ["Pooling"] and kinds[-1] == "Dense" and task in {None, "feature-extraction"}:
        _check_states(config)
        pooling, steps = pooling_settings(card.modules[1].config), _steps(card.modules[2:])
        recipe = replace(recipe, source="modules", pooling=pooling, steps=steps)
    else:
        raise NotUnderstoodError(f"modules.json chains {chain} over a Transformer for {task}")
    settings, truncation = _settings(config), _truncation(config)
    return replace(recipe, transformer=settings, truncation=truncation, chat_arguments=_chat_arguments(config))


def _settings(config: Mapping[str, Any]) -> TransformerSettings:
    ours = {"transformer_task", "modality_config", "module_output_name", "processing_kwargs"}
    settings = transformer_settings({name: value for name, value in config.items() if name not in ours})
    length = _text_arguments(config).get("max_length")
    return settings if length is None else replace(settings, max_seq_length=length)


def _text_arguments(config: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = {name: value for name, value in (config.get("processing_kwargs") or {}).items() if name != CHAT}
    text = arguments.pop("text", None) or {}
    unknown = sorted({*arguments, *text} - {"truncation", "max_length", "padding"})
    if unknown:
        raise NotUnderstoodError(f"the Transformer's settings set processing_kwargs {', '.join(unknown)}")
    return cast("Mapping[str, Any]", text)


def _chat_arguments(config: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Read the values for the chat template, all of them plain ones."""
    arguments = dict((config.get("processing_kwargs") or {}).get(CHAT) or {})
    # After a text was cut, the words after it stay: that is what this flag of sentence-transformers asks for.
    if arguments.pop("restore_suffix", True) is not True:
        raise NotUnderstoodError(f"the Transformer's settings cut the end of a {CHAT}")
    odd = [name for name, value in arguments.items() if name in RENDERING or not isinstance(value, bool | int | str)]
    if odd:
        raise NotUnderstoodError(f"the Transformer's settings set processing_kwargs {CHAT}: {', '.join(sorted(odd))}")
    return tuple(arguments.items())


def _truncation(config: Mapping[str, Any]) -> PairTruncation:
    asked = _text_arguments(config).get("truncation", "longest_first")
    asked = "longest_first" if asked is True else asked
    if asked not in get_args(PairTruncation):
        raise NotUnderstoodError(f"the Transformer's settings ask for truncation {asked!r}")
    return cast("PairTruncation", asked)


def _message_format(config: Mapping[str, Any]) -> Literal["flat", "structured", "auto"] | None:
    modalities = config.get("modality_config") or {"text": {"method": "forward", "method_output_name": "logits"}}
    chosen = modalities.get("message", modalities.get("text")) or {}
    if (chosen.get("method"), chosen.get("method_output_name")) != ("forward", "logits"):
        raise NotUnderstoodError("its Transformer does not take the logits of a plain forward pass")
    if "message" not in modalities:
        return None
    return cast("Literal['flat', 'structured', 'auto']", chosen.get("format", "auto"))


def _tokens(module: ModuleCard) -> tuple[int, ...]:
    config = module.config
    if config.get("module_input_name", "causal_logits") != "causal_logits":
        raise NotUnderstoodError(f"its LogitScore works on {config['module_input_name']}")
    tokens = [config.get("true_token_id"), config.get("false_token_id")]
    given = tuple(token for token in tokens if token is not None)
    if tokens[0] is None or not all(isinstance(token, int) for token in given):
        raise NotUnderstoodError(f"its LogitScore counts the tokens {tokens}")
    return given


def _check_states(config: Mapping[str, Any]) -> None:
    """Refuse anything but the last hidden states of texts."""
    transformer_settings({"modality_config": config.get("modality_config")})


def _steps(modules: Sequence[ModuleCard]) -> tuple[HeadSettings, ...]:
    """Read the layers after the pooling; the last one gives the scores."""
    last = modules[-1]
    if last.config.get("module_output_name") != "scores":
        raise NotUnderstoodError("its last Dense does not give the scores")
    config = {name: value for name, value in last.config.items() if name != "module_output_name"}
    chain = (*modules[:-1], replace(last, config=config))
    return tuple(step for module in chain for step in step_settings(module))


def _activation(card: ModelCard) -> tuple[str | None, str | None]:
    """Find the activation the files name, and the note if it is not applied: only PyTorch's own are imported."""
    path = _activation_path(card)
    if path is None:
        return None, None
    name = path.rsplit(".", 1)[-1]
    if path.startswith("torch.") and name in _ACTIVATIONS:
        return name, None
    if path.startswith("torch."):
        raise NotUnderstoodError(f"its activation function is {path}")
    return None, f"the files name the activation {path}, which is code of their own; the default one is applied"


def _activation_path(card: ModelCard) -> str | None:
    """Find the class of the activation; only `CrossEncoder` writes it, into one of three places."""
    older = card.config.get("sentence_transformers")
    places = (
        card.sentence_transformers.get("activation_fn"),
        older.get("activation_fn") if isinstance(older, Mapping) else None,
        card.config.get("sbert_ce_default_activation_function"),
    )
    return next((place for place in places if isinstance(place, str)), None)
