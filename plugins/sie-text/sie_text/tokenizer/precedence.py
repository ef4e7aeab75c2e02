"""Decides between a folder's `tokenizer.json` and the tokenizer that a class of transformers makes from it.

The file wins. From version 5 on, transformers' classes take only the vocabulary from it, and rebuild normalizer,
pre-tokenizer and template. Version 4 and other libraries follow the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import Unigram

from sie_core.contracts import ModelCard
from sie_text.recipe import NotUnderstoodError, TransformerSettings
from sie_text.tokenizer.files import (
    ROLES,
    TOKENIZER,
    TokenizerFacts,
    lower_case_first,
    lower_cases,
    read_files,
    read_json,
)

CLASSES_THAT_COUNT: Mapping[str, str] = {
    "MBartTokenizer": "it puts the token of the source language beside a text",
    "MBart50Tokenizer": "it puts the token of the source language beside a text",
    "NllbTokenizer": "it puts the token of the source language beside a text",
    "RoFormerTokenizer": "it splits Chinese words by a dictionary",
    "SeamlessM4TTokenizer": "it puts the token of the source language beside a text",
    "Siglip2Tokenizer": "it lower-cases a text, as the model was trained",
    "SiglipTokenizer": "it takes punctuation out of a text",
}
"""Classes that override the file, with the reason: they do more than the file can express."""

PROBES = (
    "The quick brown Fox saw 12345 owls in 1984 or 2026: naïve CAFÉ's 3.14159, or 1,234,567.89 (about 100%)!",
    "isn't it?  Two  spaces,\ta tab\nand a line",
    "Größe, Ελληνικά, Привет, 東京 に 行きます, 한국어, ☃ \N{GRINNING FACE} \N{LATIN SMALL LIGATURE FI} ½",
    "def f(x): return {'a': x[0]}  # https://example.org/a_b-c?d=1",
)
"""Texts that tokenizers of different kinds split differently."""

PARTS = ("normalizer", "pre_tokenizer", "post_processor")


def class_counts(card: ModelCard, origin: Any) -> bool:
    """Whether a tokenizer of transformers is used unchanged: without a file, by the table, or of the weights' code."""
    kind = type(origin)
    return (
        TOKENIZER not in card.files
        or kind.__name__ in CLASSES_THAT_COUNT
        or not kind.__module__.startswith("transformers.")
    )


def follow_file(card: ModelCard, settings: TransformerSettings, origin: Any) -> tuple[Tokenizer, TokenizerFacts]:
    """Read `tokenizer.json`, and take from a class of transformers what no file states: inputs, sides and defaults.

    Args:
        card: The facts of the files.
        settings: The files' arguments of the tokenizer.
        origin: The tokenizer that transformers' class makes of them.

    Returns:
        The tokenizer and its facts; they have a note if the class would tokenise one of `PROBES` differently.

    Raises:
        ModelLoadError: `CORRUPT`: a file cannot be read.
    """
    defaults = {role: str(token) for role in ROLES if (token := getattr(origin, f"{role}_token")) is not None}
    core, facts = read_files(card, settings, defaults=defaults)
    theirs: Any = getattr(origin, "backend_tokenizer", None)
    apart = [text for text in PROBES if list(origin(text, verbose=False)["input_ids"]) != core.encode(text).ids]
    if not apart and theirs and isinstance(core.model, Unigram) and _same_rules(core, theirs):
        core = theirs  # it has the vocabulary's scores as the file spells them; the library itself rounds them
        core.no_truncation()
        core.no_padding()
    notes = facts.notes
    if apart:
        differs = f"{len(apart)} of {len(PROBES)} probe texts otherwise"
        said = f"as {TOKENIZER} and the flags beside it say"
        notes += (f"{said}; transformers' {type(origin).__name__} tokenises {differs}",)
    return core, replace(
        facts,
        inputs=tuple(origin.model_input_names),
        cuts_start=origin.truncation_side == "left",
        pads_start=origin.padding_side == "left",
        chat_template=origin.chat_template,
        notes=notes,
        origin=origin,
    )


def _same_rules(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers agree in all but their vocabularies."""
    states = [
        [None if (part := getattr(each, name)) is None else part.__getstate__() for name in PARTS]
        for each in (one, other)
    ]
    added = [
        {number: token.__getstate__() for number, token in each.get_added_tokens_decoder().items()}
        for each in (one, other)
    ]
    return type(one.model) is type(other.model) and states[0] == states[1] and added[0] == added[1]


def obey_file(theirs: Any) -> str | None:
    """Make a tokenizer that transformers built follow the `tokenizer.json` that it was built from.

    Returns:
        A note for operators; None if it already does.

    Raises:
        ModelLoadError: `CORRUPT`: the files cannot be read.
        NotUnderstoodError: It cannot be made to, or several files may be meant.
    """
    folder = _folder_of(theirs)
    if folder is None:
        return None
    card = ModelCard(folder, {}, files=tuple(file.name for file in folder.iterdir()))
    if class_counts(card, theirs):
        return None
    said = read_json(card, "sentence_bert_config.json")
    arguments = {**(said.get("tokenizer_args") or {}), **(said.get("processor_kwargs") or {})}
    core, facts = follow_file(card, TransformerSettings(tokenizer_kwargs=tuple(arguments.items())), theirs)
    own = theirs.backend_tokenizer
    lower_case = lower_cases(own) and not lower_cases(core)
    for name in (*PARTS, "model"):
        setattr(own, name, getattr(core, name))
    if not _alike(own, core):
        raise NotUnderstoodError(f"transformers' {type(theirs).__name__} does not follow {TOKENIZER}")
    if lower_case:
        lower_case_first(own)
    return "; ".join(facts.notes) or None


def _alike(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether they give the same ids for the probes; afterwards the first neither cuts nor pads."""
    one.no_truncation()
    one.no_padding()
    return all(one.encode(text).ids == other.encode(text).ids for text in PROBES)


def _folder_of(theirs: Any) -> Path | None:
    """Find the folder a tokenizer was built from, which may be below the one it names; None without a file.

    Raises:
        NotUnderstoodError: Several folders hold different files.
    """
    top = Path(str(getattr(theirs, "name_or_path", "")))
    if (top / TOKENIZER).is_file() or not top.is_dir():
        return top if top.is_dir() else None
    found = {file.read_bytes(): file.parent for file in sorted(top.rglob(TOKENIZER), reverse=True)}
    if len(found) > 1:
        raise NotUnderstoodError(f"several folders hold a {TOKENIZER}, and it is not told which one is meant")
    return next(iter(found.values()), None)
