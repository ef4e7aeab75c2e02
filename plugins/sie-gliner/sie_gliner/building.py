"""Builds what an adapter is made of from a loaded checkpoint, and proves it before the first request.

It knows gliner's classes and the parts of this package, no request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from sie_core.contracts import InvalidInput, Item, LoadContext, ModelFacts, ModelLoadError, Task
from sie_gliner.batches import Layout
from sie_gliner.checkpoint import Checkpoint, load_checkpoint
from sie_gliner.encoders import packed_encoder, replace_encoder
from sie_gliner.forward import Forward
from sie_gliner.precision import place
from sie_gliner.prompts import LabelReader, Markers, PromptWriter
from sie_gliner.rows import Limits, Row, RowMaker
from sie_gliner.tokens import Tokens, core_of
from sie_gliner.words import WordReader

TOKENS_PER_WORD = 4
"""What a window has room for where neither tokenizer nor positions limit it."""
PROBE = ("Ada Lovelace wrote to Charles Babbage, 1843.", "Naïve café №7")
PROBE_LABELS = ("person", "place of birth")


def build(context: LoadContext) -> tuple[RowMaker, Forward, ModelFacts]:
    """Load and prove a checkpoint.

    Raises:
        ModelLoadError: With the failure's class.
        RuntimeError: PyTorch's own, for want of memory among others.
    """
    torch.set_num_threads(context.threads)
    began = time.perf_counter()
    checkpoint = load_checkpoint(context)
    loaded = time.perf_counter()
    context.stage("weights", loaded - began)
    rows = row_maker(context, checkpoint)
    probe = _probe_rows(rows, context)
    _prove(checkpoint, probe)
    layout = _layout(checkpoint, rows)
    relations = rows.finds_relations
    device = torch.device(str(context.device))
    model, precision, note = place(
        checkpoint.model, context.precision, device, lambda each, on: Forward(each, layout, on, relations)(probe)
    )
    memory_bytes = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    kept = replace_encoder(model) if device.type == "cpu" else None
    if (packed := packed_encoder(model)) is not None:
        memory_bytes += packed.added_bytes
    forward = Forward(model, layout, device, relations)
    forward.release()
    forward(probe)
    context.stage("warm", time.perf_counter() - loaded)
    limits = rows.limits
    notes = {
        "checkpoint": f"{checkpoint.kind}, read by gliner",
        "window": f"{limits.words} words and {limits.tokens} tokens with the labels; neighbours share {limits.overlap} "
        "words",
        "precision": note,
        "encoder": f"as transformers runs it: {kept}" if kept else None,
        "unused tensors": checkpoint.note,
    }
    facts = ModelFacts(
        operations=("extract",),
        takes_labels="required",
        memory_bytes=memory_bytes,
        precision=precision,
        notes={name: text for name, text in notes.items() if text},
    )
    return rows, forward, facts


def row_maker(context: LoadContext, checkpoint: Checkpoint) -> RowMaker:
    """Make what turns the items of a request into rows.

    Raises:
        ModelLoadError: `CONFIG`: its tokenizer cannot be used, or leaves no room.
    """
    model, config, processor = context.model.id, checkpoint.config, checkpoint.gliner.data_processor
    relation = getattr(config, "rel_token", None) if "Relex" in checkpoint.kind else None
    markers = (config.class_token_index, getattr(config, "rel_token_index", -1))
    tokens = Tokens.of(processor.transformer_tokenizer, markers)
    limits = _limits(context, checkpoint, tokens)
    budget = limits.tokens // 2
    labels: PromptWriter | LabelReader
    if "BiEncoder" in checkpoint.kind:
        own = Tokens.of(processor.labels_tokenizer)
        longest = _shortest(
            own.max_length, _positions(checkpoint.gliner.model.token_rep_layer.labels_encoder.model), budget
        )
        labels = LabelReader(model, own, longest, budget * 64)
    else:
        labels = PromptWriter(model, tokens, Markers(config.ent_token, relation, config.sep_token), budget)
    return RowMaker(
        model=model,
        words=WordReader(model, processor.words_splitter, tokens),
        tokens=tokens,
        labels=labels,
        limits=limits,
        pooling=config.subtoken_pooling,
        finds_relations=relation is not None,
    )


def _limits(context: LoadContext, checkpoint: Checkpoint, tokens: Tokens) -> Limits:
    words = int(checkpoint.config.max_len)
    positions = _positions(checkpoint.gliner.model.token_rep_layer.bert_layer.model)
    stated = [each for each in (tokens.max_length, positions, context.model.config.max_sequence_length) if each]
    most = min(stated) if stated else TOKENS_PER_WORD * words
    if most < 2 * (tokens.framing + 2):
        raise ModelLoadError(
            "CONFIG", f"The model's length is {most} tokens, which leaves no room for labels and text."
        )
    overlap = max(2 * int(checkpoint.config.max_width), words // 8)
    return Limits(words, most, min(overlap, words // 2))


def _positions(encoder: nn.Module) -> int | None:
    """Say how many tokens an encoder has positions for; None where they have no end."""
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    config: Any = encoder.config
    if getattr(config, "relative_attention", False) or config.model_type in {"t5", "mt5", "umt5"}:
        return None
    stated = getattr(config, "max_position_embeddings", None)
    return stated if isinstance(stated, int) and stated > 0 else None


def _shortest(*lengths: int | None) -> int:
    return min(length for length in lengths if length is not None)


def _layout(checkpoint: Checkpoint, rows: RowMaker) -> Layout:
    label_pad = rows.tokens.pad
    if "BiEncoder" in checkpoint.kind:
        label_pad = checkpoint.gliner.data_processor.labels_tokenizer.pad_token_id or 0
    widths = int(checkpoint.config.max_width) if "Span" in checkpoint.kind else None
    return Layout(rows.tokens.pad, label_pad, widths)


def _probe_rows(rows: RowMaker, context: LoadContext) -> list[Row]:
    """Make the rows of a probe, with the options of the profile.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options = {name: value for name, value in context.model.profile.runtime.items() if value is not None}
    task = Task("extract", labels=PROBE_LABELS, options=options)
    try:
        made = list(rows.rows([Item(text=text) for text in PROBE], task))
    except InvalidInput as error:
        problem = error.message.replace("options.", "runtime.", 1)
        raise ModelLoadError("CONFIG", f"Profile {context.model.profile.name!r}: {problem}") from None
    return [row for item in made for row, _ in item[:1]]


def _prove(checkpoint: Checkpoint, rows: Sequence[Row]) -> None:
    """Compare rows with those gliner makes of the same words.

    Raises:
        ModelLoadError: `CONFIG`: they differ.
    """
    for row in rows:
        words = [row.text[start:end] for start, end in zip(row.starts, row.ends, strict=True)]
        asked = {"entity_types": [list(row.labels)]}
        if row.choice.relation_labels or "Relex" in checkpoint.kind:
            asked["relation_types"] = [list(row.choice.relation_labels)]
        batch = checkpoint.gliner.collate_batch([{"tokenized_text": words, "ner": None}], **asked)
        same = [
            np.array_equal(batch["input_ids"][0].numpy(), row.ids),
            np.array_equal(batch["words_mask"][0].numpy(), row.places),
        ]
        if "labels_input_ids" in batch:
            kept = (
                ids[mask.bool()].numpy()
                for ids, mask in zip(batch["labels_input_ids"], batch["labels_attention_mask"], strict=True)
            )
            same += [np.array_equal(ids, own) for ids, own in zip(kept, row.prompt.rows, strict=True)]
        if not all(same):
            raise ModelLoadError("CONFIG", "Its tokenizer makes other tokens of a word alone than of one in a text.")
    take_back(checkpoint.gliner)


def take_back(library: Any) -> None:
    """Have the tokenizers of gliner's own object neither pad nor cut again: it has them do both when it tokenises."""
    processor = library.data_processor
    for tokenizer in (processor.transformer_tokenizer, getattr(processor, "labels_tokenizer", None)):
        if tokenizer is not None:
            core_of(tokenizer)
