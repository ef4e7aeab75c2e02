"""A tokenizer of `tokenizer.json` alone, and of what the small files beside it say; no package but `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import BertNormalizer

from sie_core.contracts import ModelCard, ModelLoadError
from sie_text.recipe import UNLIMITED, TransformerSettings

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
UNTYPED = ("Roberta", "XLMRoberta", "Camembert", "DistilBert", "MPNet", "T5", "Llama", "Gemma", "GPT2", "Qwen2", "Bart")
"""Classes of transformers, without `Tokenizer`, that give no token types unless their files name them."""

GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers that take `tokenizer.json` as it is."""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """What is known of a tokenizer beside its core."""

    special_ids: frozenset[int]
    unweighted: frozenset[int]
    max_length: int | None
    cuts_start: bool
    pads_start: bool
    inputs: tuple[str, ...]
    """Names of what the model is given, as `model_input_names`."""
    pad: int | None
    unknown: int | None
    mask: int | None
    chat_template: str | None
    origin: Any = None


def read_files(
    card: ModelCard, settings: TransformerSettings, *, bare: bool = False
) -> tuple[Tokenizer, TokenizerFacts]:
    """Read a tokenizer that needs no class of transformers.

    Raises:
        ModelLoadError: `CORRUPT`: a file cannot be read. `DEPENDENCY`: the files ask for what transformers alone does.
    """
    core = Tokenizer.from_file(str(card.path / TOKENIZER))
    config = {**_read(card, TOKENIZER_CONFIG), **dict(settings.tokenizer_kwargs)}
    named = {**_read(card, SPECIAL_TOKENS), **config}
    others = _others(named)
    _add_tokens(
        core, config.get("added_tokens_decoder") or {}, [*(named.get(f"{role}_token") for role in ROLES), *others]
    )
    core.encode_special_tokens = bool(config.get("split_special_tokens"))
    tokens = {role: _content(named.get(f"{role}_token")) for role in ROLES}
    ids = {role: None if token is None else core.token_to_id(token) for role, token in tokens.items()}
    ids["unk"] = _unknown(core) if ids["unk"] is None else ids["unk"]
    _set_case(core, config)
    if not bare:
        _require_framing(core, config, ids)
    more = [core.token_to_id(_content(each) or "") for each in others]
    limit = settings.max_seq_length or config.get("model_max_length")
    silent = (ids["cls"], ids["eos"], ids["pad"], ids["unk"])
    return core, TokenizerFacts(
        special_ids=frozenset(number for number in (*ids.values(), *more) if number is not None),
        unweighted=frozenset(number for number in silent if number is not None),
        max_length=int(limit) if isinstance(limit, int | float) and 0 < limit < UNLIMITED else None,
        cuts_start=_side(config, "truncation_side", core.truncation) == "left",
        pads_start=_side(config, "padding_side", core.padding) == "left",
        inputs=_inputs(config),
        pad=ids["pad"],
        unknown=ids["unk"],
        mask=ids["eos"] if ids["mask"] is None else ids["mask"],
        chat_template=config.get("chat_template"),
    )


def tokenizer_config(card: ModelCard) -> Mapping[str, Any]:
    """Read `tokenizer_config.json`; empty where there is none."""
    return _read(card, TOKENIZER_CONFIG)


def _read(card: ModelCard, name: str) -> Mapping[str, Any]:
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


def _others(named: Mapping[str, Any]) -> list[Any]:
    """List the special tokens that have no role; version 5 of transformers may name each, in a map."""
    extra, additional = named.get("extra_special_tokens") or [], named.get("additional_special_tokens") or []
    return [*additional, *extra.values()] if isinstance(extra, dict) else list(extra or additional)


def _add_tokens(core: Tokenizer, declared: Mapping[str, Any], special: Sequence[Any]) -> None:
    """Add the tokens that files beside `tokenizer.json` alone name: by their ids, and then the special ones."""
    for token in (*(declared[number] for number in sorted(declared, key=int)), *special):
        text = _content(token)
        if text is None or core.token_to_id(text) is not None:
            continue
        said = token if isinstance(token, dict) else {}
        flags = {name: bool(said[name]) for name in ("lstrip", "rstrip", "normalized", "single_word") if name in said}
        core.add_tokens([AddedToken(text, special=bool(said.get("special", True)), **flags)])


def _side(config: Mapping[str, Any], name: str, saved: Mapping[str, Any] | None) -> str:
    """Find the end at which texts are cut or padded: as the config says, or else as `tokenizer.json` was saved."""
    return str(config.get(name) or (saved or {}).get("direction") or "right").lower()


def _unknown(core: Tokenizer) -> int | None:
    """Find the token for what the vocabulary lacks where the vocabulary itself names it."""
    if hasattr(core.model, "unk_token"):
        token = core.model.unk_token
        return None if token is None else core.token_to_id(token)
    number = json.loads(core.to_str())["model"].get("unk_id")
    return number if isinstance(number, int) else None


def _set_case(core: Tokenizer, config: Mapping[str, Any]) -> None:
    """Follow `do_lower_case`, which to BERT's classes counts more than the normalizer that was saved."""
    lower, normalizer = config.get("do_lower_case"), core.normalizer
    if config.get("tokenizer_class") in GENERIC:
        return
    if isinstance(lower, bool) and isinstance(normalizer, BertNormalizer) and normalizer.lowercase != lower:
        core.normalizer = BertNormalizer(
            clean_text=normalizer.clean_text,
            handle_chinese_chars=normalizer.handle_chinese_chars,
            strip_accents=normalizer.strip_accents,
            lowercase=lower,
        )


def _require_framing(core: Tokenizer, config: Mapping[str, Any], ids: Mapping[str, int | None]) -> None:
    """Refuse files that ask for special tokens which their `tokenizer.json` does not put around a text."""
    framed = core.encode("a").ids
    for role in ("bos", "eos"):
        if config.get(f"add_{role}_token") is True and ids[role] not in framed:
            raise ModelLoadError(
                "DEPENDENCY",
                f"{TOKENIZER_CONFIG} sets add_{role}_token, which {TOKENIZER} does not do: the package transformers "
                "builds such a tokenizer, and it is not installed.",
            )


def _inputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    named = config.get("model_input_names")
    if isinstance(named, list):
        return tuple(map(str, named))
    kind = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    types = () if kind in UNTYPED else ("token_type_ids",)
    return ("input_ids", *types, "attention_mask")
