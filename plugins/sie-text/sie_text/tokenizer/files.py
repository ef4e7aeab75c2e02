"""Builds a tokenizer from `tokenizer.json` and the small files next to it; needs only the package `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import BertNormalizer, Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel

from sie_core.contracts import ModelCard, ModelLoadError
from sie_text.recipe import UNLIMITED, TransformerSettings
from sie_text.tokenizer.framing import frame_by_flags

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
CHAT_TEMPLATE = "chat_template.jinja"
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
UNTYPED = ("Roberta", "XLMRoberta", "Camembert", "DistilBert", "MPNet", "T5", "Llama", "Gemma", "GPT2", "Qwen2", "Bart")
"""Classes of transformers, without `Tokenizer`, that give token types only if their files name them."""

GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers that use `tokenizer.json` unchanged."""

BERT_FLAGS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
"""Fields of BERT's normalizer, by what `tokenizer_config.json` calls them."""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The facts of a tokenizer other than its core."""

    special_ids: frozenset[int]
    unweighted: frozenset[int]
    max_length: int | None
    cuts_start: bool
    pads_start: bool
    inputs: tuple[str, ...]
    """Names of the model's inputs, as `model_input_names`."""
    pad: int | None
    unknown: int | None
    mask: int | None
    chat_template: Any
    roles: Mapping[str, str | None]
    """The special token of each role: `bos`, `eos`, `cls` and so on."""
    saved_length: int | None = None
    """Tokens at which `tokenizer.json` itself cuts texts."""
    notes: tuple[str, ...] = ()
    """Contradictions between the files, and which of them wins."""
    origin: Any = None


def read_files(
    card: ModelCard,
    settings: TransformerSettings,
    *,
    bare: bool = False,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Tokenizer, TokenizerFacts]:
    """Read `tokenizer.json` unchanged, with the statements of the small files next to it; uses no class of
    transformers.

    The tokenizer neither cuts nor pads.

    Args:
        card: The facts of the files.
        settings: The files' arguments of the tokenizer.
        bare: Whether texts get no special tokens.
        defaults: The special tokens of roles that the files do not name; ignored if the vocabulary lacks them.

    Raises:
        ModelLoadError: `CORRUPT`: a file cannot be read.
    """
    core = Tokenizer.from_file(str(card.path / TOKENIZER))
    cuts, pads = core.truncation or {}, core.padding or {}
    core.no_truncation()
    core.no_padding()
    config = {**read_json(card, TOKENIZER_CONFIG), **dict(settings.tokenizer_kwargs)}
    named = {**read_json(card, SPECIAL_TOKENS), **config}
    others = _others(named)
    _add_tokens(
        core, config.get("added_tokens_decoder") or {}, [*(named.get(f"{role}_token") for role in ROLES), *others]
    )
    core.encode_special_tokens = bool(config.get("split_special_tokens"))
    tokens = {
        role: _content(named[f"{role}_token"]) if f"{role}_token" in named else _known(core, defaults.get(role))
        for role in ROLES
    }
    ids = {role: None if token is None else core.token_to_id(token) for role, token in tokens.items()}
    ids["unk"] = _unknown(core) if ids["unk"] is None else ids["unk"]
    notes = _set_case(core, config)
    _set_prefix_space(core, config)
    if not bare:
        notes += frame_by_flags(core, config, tokens)
    more = [core.token_to_id(_content(each) or "") for each in others]
    limit = settings.max_seq_length or config.get("model_max_length")
    silent = (ids["cls"], ids["eos"], ids["pad"], ids["unk"])
    return core, TokenizerFacts(
        special_ids=frozenset(number for number in (*ids.values(), *more) if number is not None),
        unweighted=frozenset(number for number in silent if number is not None),
        max_length=int(limit) if isinstance(limit, int | float) and 0 < limit < UNLIMITED else None,
        cuts_start=_side(config, "truncation_side", cuts) == "left",
        pads_start=_side(config, "padding_side", pads) == "left",
        inputs=_inputs(config),
        pad=ids["pad"],
        unknown=ids["unk"],
        mask=ids["eos"] if ids["mask"] is None else ids["mask"],
        chat_template=_chat_template(card, config),
        roles=tokens,
        saved_length=cuts.get("max_length"),
        notes=tuple(notes),
    )


def lower_cases(core: Tokenizer) -> bool:
    """Whether a step of the normalizer lower-cases texts, whatever else it does."""
    return any(isinstance(step, Lowercase) for step in _steps(core))


def lower_case_first(core: Tokenizer) -> None:
    """Lower-case first, unless the normalizer does so itself."""
    if not lower_cases(core):
        core.normalizer = Normalizers([Lowercase(), *_steps(core)])


def _steps(core: Tokenizer) -> list[Any]:
    normalizer: Any = core.normalizer
    if isinstance(normalizer, Normalizers):
        return [normalizer[place] for place in range(len(normalizer))]
    return [normalizer] if normalizer else []


def read_json(card: ModelCard, name: str) -> Mapping[str, Any]:
    """Read a small file of JSON; empty if it does not exist."""
    if name not in card.files:
        return {}
    try:
        content = json.loads((card.path / name).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError("CORRUPT", f"{name} cannot be read as JSON.") from error
    return content if isinstance(content, dict) else {}


def _content(token: Any) -> str | None:
    """Take the text of a token that files write as a text or as a map."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def tokenizer_config(card: ModelCard) -> Mapping[str, Any]:
    """Read `tokenizer_config.json`; empty if it does not exist."""
    return read_json(card, TOKENIZER_CONFIG)


def _known(core: Tokenizer, token: str | None) -> str | None:
    return None if token is None or core.token_to_id(token) is None else token


def _others(named: Mapping[str, Any]) -> list[Any]:
    """List the special tokens that have no role; version 5 of transformers may name each, in a map."""
    extra, additional = named.get("extra_special_tokens") or [], named.get("additional_special_tokens") or []
    return [*additional, *extra.values()] if isinstance(extra, dict) else list(extra or additional)


def _add_tokens(core: Tokenizer, declared: Mapping[str, Any], special: Sequence[Any]) -> None:
    """Add the tokens that only files other than `tokenizer.json` name: by their ids, and then the special ones."""
    for token in (*(declared[number] for number in sorted(declared, key=int)), *special):
        text = _content(token)
        if text is None or core.token_to_id(text) is not None:
            continue
        said = token if isinstance(token, dict) else {}
        flags = {name: bool(said[name]) for name in ("lstrip", "rstrip", "normalized", "single_word") if name in said}
        core.add_tokens([AddedToken(text, special=bool(said.get("special", True)), **flags)])


def _side(config: Mapping[str, Any], name: str, saved: Mapping[str, Any]) -> str:
    """Find the end at which texts are cut or padded: as the config says, or else as `tokenizer.json` was saved."""
    return str(config.get(name) or saved.get("direction") or "right").lower()


def _unknown(core: Tokenizer) -> int | None:
    """Find the token for unknown words if the vocabulary itself names it."""
    if hasattr(core.model, "unk_token"):
        token = core.model.unk_token
        return None if token is None else core.token_to_id(token)
    number = json.loads(core.to_str())["model"].get("unk_id")
    return number if isinstance(number, int) else None


def _set_case(core: Tokenizer, config: Mapping[str, Any]) -> list[str]:
    """Apply the statements of `tokenizer_config.json` on case, accents and Chinese characters; return the changes.

    In every version of transformers, BERT's classes prefer it to the saved normalizer.
    """
    saved = core.normalizer
    if config.get("tokenizer_class") in GENERIC or not isinstance(saved, BertNormalizer):
        return []
    stated = {name: config[key] for name, key in BERT_FLAGS.items() if isinstance(config.get(key), bool)}
    changed = {name: value for name, value in stated.items() if getattr(saved, name) != value}
    if not changed:
        return []
    kept = {name: getattr(saved, name) for name in ("clean_text", *BERT_FLAGS)}
    core.normalizer = BertNormalizer(**{**kept, **changed})
    said = " and ".join(f"{BERT_FLAGS[name]}={value}" for name, value in changed.items())
    return [f"{said} of {TOKENIZER_CONFIG} counts, and {TOKENIZER} says otherwise"]


def _set_prefix_space(core: Tokenizer, config: Mapping[str, Any]) -> None:
    """Follow `add_prefix_space`, which classes with byte-level vocabularies obey in every version of transformers."""
    stated, split = config.get("add_prefix_space"), core.pre_tokenizer
    if isinstance(stated, bool) and isinstance(split, ByteLevel) and split.add_prefix_space != stated:
        core.pre_tokenizer = ByteLevel(
            add_prefix_space=stated, trim_offsets=split.trim_offsets, use_regex=split.use_regex
        )


def _chat_template(card: ModelCard, config: Mapping[str, Any]) -> Any:
    """Read the chat template: from its own file, or `tokenizer_config.json`, which may hold several by name."""
    if CHAT_TEMPLATE in card.files:
        try:
            return (card.path / CHAT_TEMPLATE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError("CORRUPT", f"{CHAT_TEMPLATE} cannot be read as text.") from error
    held = config.get("chat_template")
    return {each["name"]: each["template"] for each in held} if isinstance(held, list) else held


def _inputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    named = config.get("model_input_names")
    if isinstance(named, list):
        return tuple(map(str, named))
    kind = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    types = () if kind in UNTYPED else ("token_type_ids",)
    return ("input_ids", *types, "attention_mask")
