"""Late-interaction encoders (ColBERT): the layouts of sentence-transformers, of PyLate, and of Stanford's ColBERT.

PyLate's and Stanford's files are interpreted as by `MultiVectorEncoder` of sentence-transformers 6.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import Any

from sie_core.contracts import ModelCard, ModuleCard
from sie_text.recipe.encoders.dense import step_settings
from sie_text.recipe.files import TOKENS, size
from sie_text.recipe.settings import (
    ExpansionSettings,
    HeadSettings,
    MultivectorSettings,
    NormalizeSettings,
    NotUnderstoodError,
    ProjectionSettings,
    Recipe,
    TransformerSettings,
)
from sie_text.recipe.transformer import FILE, transformer_settings

STANFORD = "HF_ColBERT"
METADATA = "artifact.metadata"
DEFAULT_QUERY_LENGTH = 32
PUNCTUATION = tuple(string.punctuation)
FILES = "config_sentence_transformers.json"

PYLATE_MARKS = (
    "query_length",
    "document_length",
    "query_expansion",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "query_prefix",
    "document_prefix",
    "skiplist_words",
)
"""Keys that identify a file of PyLate; it expands queries unless it says otherwise."""


def is_multivector(card: ModelCard) -> bool:
    """Whether the files are those of a late-interaction encoder."""
    if card.sentence_transformers.get("model_type") in ("MultiVectorEncoder", "ColBERT"):
        return True
    foreign = any(
        module.type.startswith("pylate.") or ".multi_vector_encoder." in module.type for module in card.modules
    )
    return foreign or (not card.modules and STANFORD in card.architectures)


def multivector_recipe(card: ModelCard) -> Recipe:
    """Read a late-interaction encoder.

    Raises:
        NotUnderstoodError: The files ask for something that no head does.
    """
    if not card.modules:
        if STANFORD not in card.architectures:
            raise NotUnderstoodError("its files say MultiVectorEncoder and hold no modules.json")
        return _stanford(card)
    first, *rest = card.modules
    if first.kind != "Transformer":
        raise NotUnderstoodError(f"modules.json begins with {first.kind}, not with a Transformer")
    files = card.sentence_transformers
    prefixes = {role: files[f"{role}_prefix"] or "" for role in ("query", "document") if f"{role}_prefix" in files}
    settings = {**_pylate_settings(files), **first.config}
    native = files.get("model_type") == "MultiVectorEncoder"
    mask = next((module.config for module in rest if module.kind == "MultiVectorMask"), None)
    steps = [step for module in rest for step in _steps(module)]
    if not native:
        mask = {"skiplist_words": _pylate_skiplist(files, bool(prefixes))}
        steps.append(NormalizeSettings())
    expansion = _expansion(settings.get("query_expansion"))
    if mask is None and expansion is not None and not expansion.attended:
        raise NotUnderstoodError("it fills queries up and has no MultiVectorMask that would score the filling")
    return Recipe(
        transformer_settings({**settings, "query_expansion": None}),
        pooling=None,
        multivector=_masked(mask or {}, steps, expansion, tuple(prefixes.values())),
        prompts=tuple((role, _joined(prefix, files, role)) for role, prefix in prefixes.items()),
    )


def _steps(module: ModuleCard) -> tuple[HeadSettings, ...]:
    """Read a module after the transformer: a layer over the states of tokens, or the mask, which has no layer."""
    if not module.type.startswith(("sentence_transformers.", "pylate.models.Dense.")):
        raise NotUnderstoodError(f"modules.json names {module.type}, a class of its own")
    if module.kind == "MultiVectorMask":
        return ()
    if module.kind == "HierarchicalTokenPooling":
        if module.config.get("pool_factor", 1.0) > 1:
            raise NotUnderstoodError("its HierarchicalTokenPooling merges tokens")
        if module.config.get("normalize_embeddings", False):
            raise NotUnderstoodError("its HierarchicalTokenPooling scales documents alone")
        return ()
    # A file that names no feature is older than the names; a Normalize of sentence-transformers always scales one.
    default = TOKENS if module.kind == "Dense" else "sentence_embedding"
    return step_settings(module, TOKENS, default)


def _masked(
    mask: Mapping[str, Any], steps: list[HeadSettings], expansion: ExpansionSettings | None, markers: tuple[str, ...]
) -> MultivectorSettings:
    tasks = mask.get("skiplist_tasks") or ["document"]
    return MultivectorSettings(
        steps=tuple(steps),
        skiplist=tuple(map(str, mask.get("skiplist_words") or ())),
        skiplist_tasks=frozenset([tasks] if isinstance(tasks, str) else tasks),
        keep_only=frozenset(map(int, mask.get("keep_only_token_ids") or ())),
        expansion=expansion,
        markers=markers,
    )


def _pylate_settings(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the transformer that PyLate stores next to the prompts."""
    settings = {name: files[name] for name in ("query_length", "document_length") if files.get(name) is not None}
    if "query_expansion" in files:
        return {**settings, "query_expansion": files["query_expansion"]}
    if any(mark in files for mark in PYLATE_MARKS):
        length = settings.pop("query_length", None) or DEFAULT_QUERY_LENGTH
        attend = files.get("attend_to_expansion_tokens", files.get("attend_to_mask_tokens"))
        fixed = {"strategy": "fixed", "attend": bool(attend), "length": length}
        if files.get("do_query_expansion") is False:
            return {**settings, **({"query_length": length} if files.get("query_length") else {})}
        settings["query_expansion"] = fixed
    return settings


def _pylate_skiplist(files: Mapping[str, Any], marked: bool) -> tuple[str, ...]:
    """Return the skip list of files without a mask: PyLate skips punctuation by default."""
    if files.get("skiplist_words") is not None:
        return tuple(files["skiplist_words"])
    return PUNCTUATION if marked or files.get("model_type") == "ColBERT" else ()


def _joined(prefix: str, files: Mapping[str, Any], role: str) -> str:
    """Put a marker before the prompt of its role."""
    prompt: str = (files.get("prompts") or {}).get(role) or ""
    return prefix + prompt.removeprefix(prefix)


def _expansion(config: Mapping[str, Any] | None) -> ExpansionSettings | None:
    if config is None:
        return None
    strategy, length = config.get("strategy"), size(config, "length", f"{FILE}: query_expansion")
    if strategy not in ("fixed", "min") or length is None:
        raise NotUnderstoodError(f"{FILE} set query_expansion to {dict(config)!r}")
    return ExpansionSettings(length, strategy == "fixed", bool(config.get("attend", False)), token=config.get("token"))


def _stanford(card: ModelCard) -> Recipe:
    """Read a checkpoint that holds its projection among the encoder's weights, and `artifact.metadata`."""
    metadata = _metadata(card)
    prompts = dict(card.sentence_transformers.get("prompts") or {})
    markers = {
        "query": (metadata.get("query_token_id") or "[unused0]") + " ",
        "document": (metadata.get("doc_token_id") or "[unused1]") + " ",
    }
    projection = ProjectionSettings(card.path / "model.safetensors", "linear.weight")
    expansion = ExpansionSettings(
        size(metadata, "query_maxlen", METADATA) or DEFAULT_QUERY_LENGTH,
        attended=bool(metadata.get("attend_to_mask_tokens")),
    )
    multivector = MultivectorSettings(
        steps=(projection, NormalizeSettings()),
        skiplist=PUNCTUATION if metadata.get("mask_punctuation", True) else (),
        expansion=expansion,
        markers=tuple(markers.values()),
    )
    return Recipe(
        TransformerSettings(document_length=size(metadata, "doc_maxlen", METADATA)),
        pooling=None,
        declared=False,
        multivector=multivector,
        prompts=tuple((role, prompts.get(role) or marker) for role, marker in markers.items()),
    )


def _metadata(card: ModelCard) -> Mapping[str, Any]:
    """Read `artifact.metadata`; if it is missing, the standard markers and lengths hold."""
    if METADATA not in card.files or not (card.path / METADATA).is_file():
        return {}
    try:
        content = json.loads((card.path / METADATA).read_bytes())
    except (OSError, ValueError):
        raise NotUnderstoodError(f"{METADATA} cannot be read as JSON") from None
    if not isinstance(content, dict):
        raise NotUnderstoodError(f"{METADATA} holds no JSON object")
    return content
