"""Loads a checkpoint: its encoders as runners, its heads from its tensors, proven by a first run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from sie_pytorch.forward import MappedFiles, keep_refusal, logits_moved, recall_refusal, with_safetensors
from sie_text.loading import Stages, disable_progress_bars, needed_card
from torch import nn
from transformers import AutoConfig

from sie_core.contracts import LoadContext, ModelFacts, device_errors
from sie_gliner.adapter import GlinerExtractor
from sie_gliner.checkpoint.config import GlinerConfig, heed_own_code, read_config
from sie_gliner.checkpoint.tensors import CheckpointTensors
from sie_gliner.encoders import LABELS, TEXTS, Encoders, load_encoders
from sie_gliner.forward import Forward
from sie_gliner.heads.entities import EntityHeads
from sie_gliner.heads.relating.heads import RelationHeads
from sie_gliner.judging import FirstRun
from sie_gliner.text.making import make_rows, probe_rows
from sie_gliner.text.rows import RowMaker
from sie_gliner.text.tokenizers import load_tokens

ENCODERS = (f"{TEXTS}model.", f"{LABELS}model.")
"""Prefixes of the tensors that runners read."""
UNREAD = {"rnn.": True, "cross_fuser.": False}
"""Prefixes of the tensors that gliner saves and does not use; of bi-encoders, or of uni-encoders."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """The heads of a checkpoint."""

    entities: EntityHeads
    relations: RelationHeads | None

    @property
    def modules(self) -> list[nn.Module]:
        return [self.entities] if self.relations is None else [self.entities, self.relations]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A checkpoint on its device."""

    forward: Forward
    heads: str | None = None
    """Why its heads compute in another precision than its encoders; None if they do not."""


def load(context: LoadContext) -> GlinerExtractor:
    """Load a checkpoint from safetensors, and prove that its tokenizer makes rows word by word.

    A pinned pickle is converted to safetensors first.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
        DeviceLost: Only a new process gets the device back.
    """
    stages = Stages(context)
    context = with_safetensors(context)
    card = needed_card(context)
    disable_progress_bars()
    config = read_config(card, context.tokenizers)
    code = heed_own_code(context, config)
    tokens, config = load_tokens(config)
    tensors = CheckpointTensors(card.path)
    stages.done("tokenizer")
    with device_errors():
        asked, refusal = context, recall_refusal(context)
        if refusal is not None:
            context = replace(context, precision="float32")
        first_run = FirstRun(context, config, tokens)
        encoders = load_encoders(context, card, config, tensors, first_run.judges)
        why = encoders.texts.info.notes.get("precision")
        if why is not None and encoders.precision == "float32":
            keep_refusal(asked, why)
        of_labels = None if encoders.labels is None else encoders.labels.info.max_sequence_length
        rows = make_rows(context, config, tokens, encoders.texts.info.max_sequence_length, of_labels)
        probe = probe_rows(rows, context)
        heads = _load_heads(config, encoders, tensors)
        memory_bytes = sum(weight.nbytes for each in heads.modules for weight in each.state_dict().values())
        stages.done("weights")
        _prepare(context, heads)
        placed = _placed(context, config, encoders, heads, first_run)
        if isinstance(placed, str):
            refusal = placed
            keep_refusal(asked, refusal)
            del encoders
            context = replace(context, precision="float32")
            encoders = load_encoders(context, card, config, tensors)
            placed = _placed(context, config, encoders, heads, first_run)
            assert not isinstance(placed, str)
        placed.forward.run(probe)
        stages.done("warm")
    facts = ModelFacts(
        operations=("extract",),
        takes_labels="required",
        memory_bytes=encoders.memory_bytes + memory_bytes,
        precision=encoders.precision,
        notes={**code, **_notes(config, encoders, rows, placed.heads, refusal)},
    )
    return GlinerExtractor(rows, placed.forward, facts, context.threads)


def _load_heads(config: GlinerConfig, encoders: Encoders, tensors: CheckpointTensors) -> _Heads:
    """Make the heads, and load their weights.

    Raises:
        ModelLoadError: `CONFIG`: they are of a kind that is not known. `CORRUPT`: the file's tensors are not theirs.
    """
    label_size = None if encoders.labels is None else encoders.labels.info.hidden_size
    attention_heads = AutoConfig.for_model(**config.encoder).num_attention_heads if config.fusion else 0
    with torch.device("meta"):
        entities = EntityHeads(config, encoders.texts.info.hidden_size, label_size, attention_heads)
        heads = _Heads(entities, None if config.relations_layer is None else RelationHeads(config))
    needed = {name for module in heads.modules for name in module.state_dict()}
    fused = (f"{TEXTS}layers_fuser.", f"{LABELS}layers_fuser.") if config.fuses_layers else ()
    unread = (prefix for prefix, of_bi in UNREAD.items() if of_bi == (label_size is not None))
    tensors.account_for(needed, (*ENCODERS, *fused, *unread))
    for module in heads.modules:
        tensors.fill(module)
    return heads


def _prepare(context: LoadContext, heads: _Heads) -> None:
    """Convert the weights of heads to the form of their products, and release the pages of unused ones."""
    assert context.weights is not None
    weights = [weight for module in heads.modules for weight in module.parameters()]
    mapped = MappedFiles.of(context.weights, weights)
    heads.entities.prepare(fast=context.device.kind == "cpu")
    kept = {weight.data_ptr() for module in heads.modules for weight in module.parameters()}
    mapped.release(weight for weight in weights if weight.data_ptr() not in kept)


def _placed(
    context: LoadContext, config: GlinerConfig, encoders: Encoders, heads: _Heads, first_run: FirstRun
) -> _Placed | str:
    """Move the heads to the device, on CUDA in half precision if the logits allow it.

    Returns:
        The placed parts; or why encoders in half precision must not serve.
    """
    device = torch.device(str(context.device))

    def made(encoders: Encoders, heads: _Heads, dtype: torch.dtype) -> Forward:
        for module in heads.modules:
            module.to(device, dtype)
        return Forward(encoders, heads.entities, heads.relations, config.pooling, device, dtype)

    forward, precision, rows = made(encoders, heads, torch.float32), encoders.precision, first_run.rows
    if precision == "float32":
        return _Placed(forward)
    expected = made(first_run.in_float32(encoders), heads, torch.float32).entity_logits(rows)
    moved = logits_moved(forward.entity_logits(rows), expected)
    if moved is not None:
        return f"in {precision} {moved}"
    if device.type != "cuda":
        return _Placed(forward)
    half = made(encoders, copy.deepcopy(heads), getattr(torch, precision))
    moved = logits_moved(half.entity_logits(rows), expected)
    return _Placed(half) if moved is None else _Placed(forward, f"float32 instead of {precision}, in which {moved}")


def _notes(
    config: GlinerConfig, encoders: Encoders, rows: RowMaker, heads: str | None, refusal: str | None
) -> dict[str, str]:
    limits = rows.limits
    notes = {
        **encoders.texts.info.notes,
        "tokenizer": rows.tokens.tokenizer.note,
        "checkpoint": config.kind,
        "window": f"{limits.words} words and {limits.tokens} tokens with the labels; neighbours share {limits.overlap} "
        "words",
        "label_runner": None if encoders.labels is None else encoders.labels.info.name,
        "heads": heads,
        **({"precision": refusal} if refusal else {}),
    }
    return {name: text for name, text in notes.items() if text}
