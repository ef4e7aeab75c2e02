"""Makes the converter of items to rows for a checkpoint, and proves that its tokens equal those of whole rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sie_text.loading import PROBE_TEXTS, profile_fault, profile_options

from sie_core.contracts import InvalidInput, Item, LoadContext, ModelLoadError, Task
from sie_gliner.checkpoint.bases import CONFIG_FILE
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.checkpoint.splitters import make_splitter
from sie_gliner.text.prompts import LabelReader, Markers, PromptWriter
from sie_gliner.text.rows import Limits, Row, RowMaker
from sie_gliner.text.tokenizers import load_label_tokens
from sie_gliner.text.tokens import Tokens
from sie_gliner.text.words import WordReader

TOKENS_PER_WORD = 4
"""Tokens of a window per word, if neither tokenizer nor positions limit it."""
LABELS_OF_A_REQUEST = 64
"""Bound on the tokens of a request's labels if they have an encoder, as a multiple of half a window."""
PROBE = ("Ada Lovelace wrote to Charles Babbage, 1843.", "Naïve café №7")
PROBE_LABELS = ("person", "place of birth")
JUDGED_LABELS = ("person", "place", "date")
JUDGED = 5
"""Number of `PROBE_TEXTS` by which half precision is judged: each word and label of one gives logits."""


def make_rows(
    context: LoadContext,
    config: GlinerConfig,
    tokens: Tokens,
    text_positions: int | None,
    label_positions: int | None,
) -> RowMaker:
    """Make the converter of a request's items to rows.

    Args:
        context: The load.
        config: The checkpoint's config.
        tokens: The tokenizer of texts.
        text_positions: Tokens that the encoder of texts has positions for; None for no limit.
        label_positions: The same of the encoder of labels.

    Raises:
        ModelLoadError: `CONFIG`: its tokenizer cannot be used, or leaves no room.
    """
    model = context.model.id
    limits = _limits(context, config, tokens, text_positions)
    budget = limits.tokens // 2
    labels: PromptWriter | LabelReader
    if config.label_tokenizer is not None:
        own = load_label_tokens(config.label_tokenizer)
        longest = min(each for each in (own.tokenizer.max_length, label_positions, budget) if each is not None)
        labels = LabelReader(model, own, longest, budget * LABELS_OF_A_REQUEST)
    else:
        labels = PromptWriter(model, tokens, _markers(config, tokens), budget)
    return RowMaker(
        model=model,
        words=WordReader(model, make_splitter(config.splitter), tokens),
        tokens=tokens,
        labels=labels,
        limits=limits,
        pooling=config.pooling,
        finds_relations=config.relations_layer is not None,
    )


def _limits(context: LoadContext, config: GlinerConfig, tokens: Tokens, positions: int | None) -> Limits:
    words = config.max_words
    stated = (tokens.tokenizer.max_length, positions, context.model.config.max_sequence_length)
    most = min((each for each in stated if each), default=TOKENS_PER_WORD * words)
    if most < 2 * (tokens.framing + 2):
        raise ModelLoadError(
            "CONFIG", f"The model's length is {most} tokens, which leaves no room for labels and text."
        )
    return Limits(words, most, min(max(2 * config.max_width, words // 8), words // 2))


def _markers(config: GlinerConfig, tokens: Tokens) -> Markers:
    """Name the words around labels, which must be the tokens that the config names.

    Raises:
        ModelLoadError: `CONFIG`: one is not.
    """
    related = config.relations_layer is not None
    named = [("class_token_index", config.entity_index, config.entity_marker)]
    named += [("rel_token_index", config.relation_index, config.relation_marker)] if related else []
    for name, index, marker in named:
        if (ids := tokens.ids([marker]).tolist()) != [index]:
            raise ModelLoadError(
                "CONFIG", f"{CONFIG_FILE}: {name} is {index}, but the tokenizer makes {ids} of {marker!r}."
            )
    return Markers(
        config.entity_marker,
        config.relation_marker if related else None,
        config.separator,
        config.reads_entity_marker,
        config.reads_relation_marker,
    )


def probe_rows(rows: RowMaker, context: LoadContext) -> list[Row]:
    """Make the rows of a first run, with the options of the profile.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served, naming the option; or the tokenizer splits a
            word alone otherwise than in a text.
    """
    task = Task("extract", labels=PROBE_LABELS, options=profile_options(context))
    try:
        made = [next(item)[0] for item in rows.rows([Item(text=text) for text in PROBE], task)]
    except InvalidInput as error:
        raise profile_fault(context, error) from None
    if not all(_is_whole(rows, row) for row in made):
        raise ModelLoadError("CONFIG", "Its tokenizer makes other tokens of a word alone than of one in a text.")
    return made


def judged_rows(rows: RowMaker, context: LoadContext) -> list[Row]:
    """Make the rows for judging half precision, with the options of the profile.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served, by the name of the option.
    """
    task = Task("extract", labels=JUDGED_LABELS, options=profile_options(context))
    try:
        return [next(item)[0] for item in rows.rows([Item(text=text) for text in PROBE_TEXTS[:JUDGED]], task)]
    except InvalidInput as error:
        raise profile_fault(context, error) from None


def _is_whole(rows: RowMaker, row: Row) -> bool:
    """Whether the row, assembled from the tokens of words, equals the tokenizer's result for all of them at once."""
    before = _prompt_words(rows, row)
    words = [row.text[start:end] for start, end in zip(row.starts, row.ends, strict=True)]
    encoding = rows.tokens.tokenizer.core.encode([*before, *words], is_pretokenized=True)
    numbers = np.array([-1 if word is None else word - len(before) for word in encoding.word_ids]) + 1
    same = np.array_equal(encoding.ids, row.ids)
    if isinstance(rows.labels, LabelReader):
        core = rows.labels.tokens.tokenizer.core
        pairs = zip(row.labels, row.prompt.rows, strict=True)
        same = same and all(np.array_equal(core.encode(label).ids, ids) for label, ids in pairs)
    return same and bool(((row.places == 0) | (row.places == numbers)).all())


def _prompt_words(rows: RowMaker, row: Row) -> Sequence[str]:
    if isinstance(rows.labels, LabelReader):
        return ()
    markers = rows.labels.markers
    words = [word for label in row.labels for word in (markers.entity, label)]
    words.append(markers.separator)
    if markers.relation is not None:
        words += [word for label in row.choice.relation_labels for word in (markers.relation, label)]
        words.append(markers.separator)
    return words
