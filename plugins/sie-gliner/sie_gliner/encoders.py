"""The encoders of a checkpoint, of texts and of labels: each a runner, as every text encoder's is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from sie_pytorch.forward import Batch, EncoderPart, Judge, RunnerInfo, Transfers, build_runner
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.tokenizer import Ids

from sie_core.contracts import LoadContext, ModelCard
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.checkpoint.tensors import CheckpointTensors
from sie_gliner.fused_layers import FusedLayers

TEXTS = "token_rep_layer.bert_layer."
LABELS = "token_rep_layer.labels_encoder."
"""Prefixes of the tensors of each encoder, and of the mean over its layers."""


class Encoder(Protocol):
    """A runner with its properties."""

    info: RunnerInfo

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `sie_pytorch.forward.Runner.forward`."""
        ...


@dataclass(frozen=True, slots=True)
class Encoders:
    """The encoders of a checkpoint."""

    texts: Encoder
    labels: Encoder | None
    """None if labels precede the text."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of their weights."""
        return sum(each.info.memory_bytes for each in (self.texts, self.labels) if each is not None)

    @property
    def precision(self) -> str:
        """Precision of the encoders; the coarser one if they differ."""
        found = [each.info.precision for each in (self.texts, self.labels) if each is not None]
        return max(found, key=("float32", "float16", "bfloat16").index)


def load_encoders(
    context: LoadContext,
    card: ModelCard,
    config: GlinerConfig,
    tensors: CheckpointTensors,
    judges: tuple[Judge, Judge] | None = None,
) -> Encoders:
    """Load the encoders of a checkpoint, and choose a runner for each.

    Args:
        context: The load.
        card: The checkpoint's files.
        config: The checkpoint's config.
        tensors: Its tensors.
        judges: Judges of the text encoder, and of the label encoder, which is loaded after it; see `build_runner`.

    Raises:
        ModelLoadError: One cannot be served.
        OutOfDeviceMemory: The device has no room.
    """

    def load(part: EncoderPart, prefix: str, judge: Judge | None) -> Encoder:
        if config.fuses_layers:
            return FusedLayers(context, card, part, tensors, f"{prefix}layers_fuser.")
        return build_runner(
            card.path,
            card,
            context.device,
            context.precision,
            context.attention_backend,
            context.runners,
            context.threads,
            part=part,
            judge=judge,
        )

    torch.set_num_threads(context.threads)
    of_texts, of_labels = judges or (None, None)
    texts = load(EncoderPart(config.encoder, f"{TEXTS}model."), TEXTS, of_texts)
    if config.label_encoder is None:
        return Encoders(texts, None)
    return Encoders(texts, load(EncoderPart(config.label_encoder, f"{LABELS}model."), LABELS, of_labels))


def encode(encoder: Encoder, rows: Sequence[Ids], transfers: Transfers) -> tuple[torch.Tensor, Ids]:
    """Compute the states of the tokens of rows, concatenated: `[tokens, hidden]`; also the start of each row."""
    batch = PackedBatch([TokenSequence(row) for row in rows])
    ids, positions = transfers.upload([batch.ids, batch.positions])
    states = encoder.forward(Batch(ids, positions, torch.from_numpy(batch.cu_seqlens)))
    return states, batch.cu_seqlens[:-1]
