"""Builds a model's tokenizer from its files; nothing is fetched.

`tokenizer.json` is read unchanged; without it, a class of transformers makes the tokenizer. Only its Rust core is used
afterwards: the Python around it changes state while it works, so threads cannot share it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from sie_core.contracts import ModelCard, ModelLoadError
from sie_text.recipe import UNLIMITED, NotUnderstoodError, TransformerSettings, has_tokenizer
from sie_text.tokenizer.core import Ids, TextTokenizer, special_tokens
from sie_text.tokenizer.files import (
    ROLES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TokenizerFacts,
    lower_case_first,
    read_files,
    tokenizer_config,
)
from sie_text.tokenizer.precedence import class_counts, follow_file
from sie_text.tokenizer.shortening import cuts_between_words

log = logging.getLogger(__name__)

TRIAL = "a tokenizer's trial: ☃"
"""A text that every tokenizer must take; its last character is in few vocabularies."""

FILELESS = frozenset({"ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer"})
"""Tokenizers of transformers that read bytes or characters, so that no file holds their vocabulary."""


def load_tokenizer(
    card: ModelCard,
    settings: TransformerSettings | None = None,
    *,
    trust_remote_code: bool = False,
    markers: Sequence[str] = (),
    bare: bool = False,
) -> TextTokenizer:
    """Build the tokenizer of a model from `tokenizer.json`, or else as transformers does.

    Args:
        card: The facts of the files.
        settings: The files' arguments of the tokenizer.
        trust_remote_code: Whether code that comes with the weights may run.
        markers: Prompts whose first word must be one token; see `MultivectorSettings`.
        bare: Whether texts get no special tokens; then only `tokenizer.json` counts, if there is one.

    Raises:
        ModelLoadError: `CONFIG`: there is no tokenizer. `CORRUPT`: its files cannot be read. `DEPENDENCY`: a package to
            read them is missing.
        NotUnderstoodError: It has no Rust core, or frames texts in another way.
    """
    settings = settings or TransformerSettings()
    by_file = TOKENIZER in card.files
    origin = None
    if not by_file or not (bare or find_spec("transformers") is None):
        try:
            origin = transformers_tokenizer(card, settings, trust_remote_code=trust_remote_code)
        except ModelLoadError as error:
            if not by_file or TOKENIZER_CONFIG not in card.files:
                raise
            log.info("transformers cannot build a tokenizer of %s: %s", card.path.name, error)
    if origin is not None and class_counts(card, origin):
        if not origin.is_fast:
            raise NotUnderstoodError(f"{type(origin).__name__} has no implementation in the tokenizers library")
        return text_tokenizer(origin, card, settings, markers, bare=bare)
    try:
        core, facts = read_files(card, settings, bare=bare) if origin is None else follow_file(card, settings, origin)
    except ModelLoadError:
        raise
    except Exception as error:  # Rust's errors have no specific class
        raise broken_tokenizer(card, error) from error
    return _text_tokenizer(core, facts, card, settings, markers, bare=bare)


def transformers_tokenizer(card: ModelCard, settings: TransformerSettings, *, trust_remote_code: bool = False) -> Any:
    """Have transformers build its tokenizer, with or without a Rust core; see `load_tokenizer`."""
    if not has_tokenizer(card) and tokenizer_config(card).get("tokenizer_class") not in FILELESS:
        raise ModelLoadError("CONFIG", "The folder of weights holds no tokenizer: tokenizer.json is missing.")
    if find_spec("transformers") is None:
        raise ModelLoadError(
            "DEPENDENCY",
            "The folder of weights holds no tokenizer.json that would do alone: the package transformers builds the "
            "tokenizer of such files, and it is not installed.",
        )
    arguments = dict(settings.tokenizer_kwargs)
    if settings.max_seq_length is not None:
        arguments.setdefault("model_max_length", settings.max_seq_length)
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(
            str(card.path), local_files_only=True, trust_remote_code=trust_remote_code, **arguments
        )
    except ImportError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"The tokenizer's files need a package that is not installed: {error.name or 'see the log'}."
        ) from error
    except Exception as error:
        # Rust's errors have no specific class, and a missing file is reported in half a dozen ways.
        raise broken_tokenizer(card, error) from error


def broken_tokenizer(card: ModelCard, error: Exception) -> ModelLoadError:
    """Report that the files make no working tokenizer, naming a missing file if there is one."""
    said = f"The tokenizer cannot be built from the weights' files ({type(error).__name__})"
    return ModelLoadError("CORRUPT", f"{said}{lacking_config(card)}; see the log.")


def lacking_config(card: ModelCard) -> str:
    """Report that the file that names most tokenizers' special tokens is missing; empty if it exists."""
    return "" if TOKENIZER_CONFIG in card.files else f"; {TOKENIZER_CONFIG} is missing"


def text_tokenizer(
    origin: Any, card: ModelCard, settings: TransformerSettings, markers: Sequence[str] = (), *, bare: bool = False
) -> TextTokenizer:
    """Take the Rust core and the facts of transformers' tokenizer, whose core is set up anew.

    Raises:
        ModelLoadError: `CORRUPT`: it cannot tokenise.
        NotUnderstoodError: It adds special tokens in an unknown way.
    """
    core, limit = origin.backend_tokenizer, origin.model_max_length
    saved = (core.truncation or {}).get("max_length")
    core.no_truncation()
    core.no_padding()
    silent = (origin.cls_token_id, origin.eos_token_id, origin.pad_token_id, origin.unk_token_id)
    facts = TokenizerFacts(
        special_ids=frozenset(origin.all_special_ids),
        unweighted=frozenset(number for number in silent if number is not None),
        max_length=None if limit is None or limit >= UNLIMITED else int(limit),
        cuts_start=origin.truncation_side == "left",
        pads_start=origin.padding_side == "left",
        inputs=tuple(origin.model_input_names),
        pad=origin.pad_token_id,
        unknown=origin.unk_token_id,
        mask=origin.eos_token_id if origin.mask_token_id is None else origin.mask_token_id,
        chat_template=origin.chat_template,
        roles={role: getattr(origin, f"{role}_token") for role in ROLES},
        saved_length=saved,
        origin=origin,
    )
    # Not a copy by way of JSON: that rounds the scores of a Unigram vocabulary, and equal ones then cut otherwise.
    return _text_tokenizer(core, facts, card, settings, markers, bare=bare)


def _text_tokenizer(
    core: Tokenizer,
    facts: TokenizerFacts,
    card: ModelCard,
    settings: TransformerSettings,
    markers: Sequence[str],
    *,
    bare: bool,
) -> TextTokenizer:
    try:
        core.encode(TRIAL)
    except Exception as error:  # Rust's errors have no specific class
        raise broken_tokenizer(card, error) from error
    if settings.do_lower_case:
        lower_case_first(core)
    marked = _register(core, markers)
    takes_types = "token_type_ids" in facts.inputs
    none: Ids = np.zeros(0, dtype=np.int64)
    head, tail = (none, none) if bare else special_tokens(core, takes_types)
    embedded = card.config.get("vocab_size")
    return TextTokenizer(
        core=core,
        head=head,
        tail=tail,
        special_ids=facts.special_ids | marked,
        vocabulary=core.get_vocab_size(with_added_tokens=True),
        embedded=embedded if isinstance(embedded, int) else None,
        max_length=facts.max_length,
        saved_length=facts.saved_length,
        cuts_start=facts.cuts_start,
        takes_types=takes_types,
        takes_mask="attention_mask" in facts.inputs,
        pad=facts.pad,
        unknown=facts.unknown,
        pads_start=facts.pads_start,
        mask=facts.mask,
        unweighted=facts.unweighted,
        chat_template=facts.chat_template,
        roles=facts.roles,
        note="; ".join(facts.notes) or None,
        origin=facts.origin,
        cuts_between_words=cuts_between_words(core),
    )


def _register(core: Tokenizer, markers: Sequence[str]) -> frozenset[int]:
    """Make a prompt's marker one token, if the vocabulary has it and the tokenizer would split it.

    PyLate and Stanford's ColBERT put `[unused0]` or `[Q] ` before a text as an id. Each marker is looked for whole and
    up to its first space, as sentence-transformers does.
    """
    found = []
    for marker in markers:
        words = marker.split(None, 1)
        known = (each for each in (marker, *words[:1]) if core.token_to_id(each) is not None)
        token = next(known, None) if words else None
        if token is not None and core.encode(token, add_special_tokens=False).tokens != [token]:
            found.append(token)
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in found])
    return frozenset(number for number in map(core.token_to_id, found) if number is not None)
