"""Loads a checkpoint: its encoders as runners, its heads from its tensors, proven by a first run."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from sie_pytorch.forward import MappedFiles
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
from sie_gliner.text.making import make_rows, probe_rows
from sie_gliner.text.rows import Row, RowMaker
from sie_gliner.text.tokenizers import load_tokens

ENCODERS = (f"{TEXTS}model.", f"{LABELS}model.")
"""How the names of tensors begin that runners account for."""
UNREAD = {"rnn.": True, "cross_fuser.": False}
"""How the names of those begin that gliner saves and does not use; of bi-encoders, or of uni-encoders."""
MOST = 0.05
"""How far a probability of the first run may move where heads compute in half precision."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """The heads of a checkpoint."""

    entities: EntityHeads
    relations: RelationHeads | None

    @property
    def modules(self) -> list[nn.Module]:
        return [self.entities] if self.relations is None else [self.entities, self.relations]


def load(context: LoadContext) -> GlinerExtractor:
    """Load a checkpoint from safetensors, and prove that its tokenizer makes rows word by word.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
        DeviceLost: Only a new process gets the device back.
    """
    card, stages = needed_card(context), Stages(context)
    disable_progress_bars()
    config = read_config(card)
    code = heed_own_code(context, config)
    tokens, config = load_tokens(card, config)
    tensors = CheckpointTensors(card.path)
    stages.done("tokenizer")
    with device_errors():
        encoders = load_encoders(context, card, config, tensors)
        of_labels = None if encoders.labels is None else encoders.labels.info.max_sequence_length
        rows = make_rows(context, card, config, tokens, encoders.texts.info.max_sequence_length, of_labels)
        probe = probe_rows(rows, context)
        heads = _load_heads(config, encoders, tensors)
        memory_bytes = sum(weight.nbytes for each in heads.modules for weight in each.state_dict().values())
        stages.done("weights")
        forward, note = _placed(context, config, encoders, heads, probe)
        forward.run(probe)
        stages.done("warm")
    facts = ModelFacts(
        operations=("extract",),
        takes_labels="required",
        memory_bytes=encoders.memory_bytes + memory_bytes,
        precision=encoders.texts.info.precision,
        notes={**code, **_notes(config, encoders, rows, note)},
    )
    return GlinerExtractor(rows, forward, facts, context.threads)


def _load_heads(config: GlinerConfig, encoders: Encoders, tensors: CheckpointTensors) -> _Heads:
    """Make the heads, and give them their weights.

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


def _placed(
    context: LoadContext, config: GlinerConfig, encoders: Encoders, heads: _Heads, probe: list[Row]
) -> tuple[Forward, str | None]:
    """Bring the heads to the device, in half precision where that leaves probabilities as they are."""
    device = torch.device(str(context.device))
    assert context.weights is not None
    weights = [weight for module in heads.modules for weight in module.parameters()]
    mapped = MappedFiles.of(context.weights, weights)
    heads.entities.prepare(fast=device.type == "cpu")
    kept = {weight.data_ptr() for module in heads.modules for weight in module.parameters()}
    mapped.release(weight for weight in weights if weight.data_ptr() not in kept)

    def made(heads: _Heads, dtype: torch.dtype) -> Forward:
        for module in heads.modules:
            module.to(device, dtype)
        return Forward(encoders, heads.entities, heads.relations, config.pooling, device, dtype)

    forward, precision = made(heads, torch.float32), encoders.texts.info.precision
    if device.type != "cuda" or precision == "float32":
        return forward, None
    expected = forward.run(probe)
    half = made(copy.deepcopy(heads), getattr(torch, precision))
    if torch.allclose(half.run(probe), expected, rtol=0, atol=MOST):
        return half, None
    return forward, f"the heads in float32 instead of {precision}, in which probabilities move"


def _notes(config: GlinerConfig, encoders: Encoders, rows: RowMaker, heads: str | None) -> dict[str, str]:
    limits = rows.limits
    notes = {
        **encoders.texts.info.notes,
        "tokenizer": rows.tokens.tokenizer.note,
        "checkpoint": config.kind,
        "window": f"{limits.words} words and {limits.tokens} tokens with the labels; neighbours share {limits.overlap} "
        "words",
        "label_runner": None if encoders.labels is None else encoders.labels.info.name,
        "heads": heads,
    }
    return {name: text for name, text in notes.items() if text}
