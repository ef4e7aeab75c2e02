"""Maps the states of words and labels to logits of entities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from sie_pytorch.forward import prepack
from torch import nn

from sie_core.contracts import ModelLoadError
from sie_gliner.checkpoint.bases import CONFIG_FILE
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.heads.contexts import ContextEncoder
from sie_gliner.heads.gathering import Table
from sie_gliner.heads.layers import CrossFuser, WordLstm, mlp
from sie_gliner.heads.markers import EndMarkers
from sie_gliner.heads.spans import CatVectors, ConvVectors, MlpVectors, QueryVectors, SharedConvVectors
from sie_gliner.heads.words import WordScorer

MODES: dict[str, Callable[[str, int, int], nn.Module]] = {
    **dict.fromkeys(("marker", "markerV0", "markerV1", "markerV2", "token_level"), EndMarkers),
    **dict.fromkeys(("conv_conv", "conv_max", "conv_mean", "conv_sum"), ConvVectors),
    "cat": lambda _, size, width: CatVectors(size, width),
    "conv_share": lambda _, size, width: SharedConvVectors(size, width),
    "mlp": lambda _, size, width: MlpVectors(size, width),
    "query": lambda _, size, width: QueryVectors(size, width),
}
"""Representations of spans, by `span_mode`."""


class SpanLayer(nn.Module):
    """Represents spans, after an encoder over words if the checkpoint has one."""

    def __init__(self, config: GlinerConfig) -> None:
        super().__init__()
        if config.span_mode not in MODES:
            raise ModelLoadError(
                "CONFIG",
                f"{CONFIG_FILE}: span_mode is {config.span_mode!r}, and must be one of {', '.join(sorted(MODES))}.",
            )
        size, written = config.hidden_size, config.span_encoder
        self.context_encoder = None if written is None else ContextEncoder(written, size)
        self.span_rep_layer: Any = MODES[config.span_mode](config.span_mode, size, config.max_width)

    def contextual(self, words: Table) -> Table:
        """Run the encoder over words."""
        if self.context_encoder is None:
            return words
        return replace(words, states=self.context_encoder(words.states, words.are_there, words.counts))

    def logits(self, words: Table, labels: torch.Tensor) -> torch.Tensor:
        """Score every span; see `EndMarkers.logits`."""
        found: torch.Tensor = self.span_rep_layer.logits(words.states, words.lengths, labels)
        return found

    def vectors(self, words: Table, spans: torch.Tensor) -> torch.Tensor:
        """Represent spans, int64 `[spans, 3]`: row, first word, last word."""
        found: torch.Tensor = self.span_rep_layer.vectors(words.states, words.lengths, *spans.unbind(1))
        return found


class EntityHeads(nn.Module):
    """The modules between the encoders and the logits of entities, named as in a checkpoint.

    Attributes:
        span_rep_layer: Represents spans; None if the model has no span representation.
    """

    def __init__(self, config: GlinerConfig, text_size: int, label_size: int | None, attention_heads: int) -> None:
        """Make the modules, to be filled.

        Args:
            config: The checkpoint's config.
            text_size: Size of the text encoder's states.
            label_size: Size of the label encoder's states; None without one.
            attention_heads: Heads of the encoder of texts.

        Raises:
            ModelLoadError: `CONFIG`: the kind of a part is unknown.
        """
        super().__init__()
        size = config.hidden_size
        sizes = {"projection": text_size, "labels_projection": label_size or size}
        self.token_rep_layer = nn.ModuleDict(
            {name: nn.Linear(width, size) for name, width in sizes.items() if width != size}
        )
        bi_encoder = label_size is not None
        # gliner makes both for every checkpoint that names them, and uses one.
        self.rnn = WordLstm(size, config.lstm_layers) if config.lstm_layers > 0 and not bi_encoder else None
        fuser = CrossFuser(size, attention_heads, config.fusion_layers, config.fusion) if config.fusion else None
        self.cross_fuser = fuser if bi_encoder else None
        scores_words, relates = config.scores_words, config.relations_layer is not None
        self.scorer = WordScorer(size) if scores_words else None
        represents = not scores_words or relates or config.represents_spans
        self.span_rep_layer = SpanLayer(config) if represents else None
        self.prompt_rep_layer = mlp(size, size) if not scores_words or relates else None

    def prepare(self, *, fast: bool) -> None:
        """Bring the weights, once they are there, into the form they are multiplied in; `fast` on a CPU in float32."""
        for module in list(self.modules()):
            if isinstance(module, EndMarkers | WordScorer):
                module.fold()
        parts = {name: part for name, part in self.named_children() if name != "span_rep_layer"}
        if self.span_rep_layer is not None:
            # Keep transformers' modules unchanged: they may read their own weights.
            parts["span_rep_layer"] = self.span_rep_layer.span_rep_layer
        for part in parts.values() if fast else ():
            prepack(part)

    def project(self, states: torch.Tensor, name: str = "projection") -> torch.Tensor:
        """Bring an encoder's states to the size of the heads."""
        if name not in self.token_rep_layer:
            return states
        found: torch.Tensor = self.token_rep_layer[name](states)
        return found

    def represent(self, words: Table, labels: Table) -> tuple[Table, Table]:
        """Relate words to each other and to labels, before any is scored."""
        if self.rnn is not None:
            words = replace(words, states=self.rnn(words.states, words.counts))
        if self.cross_fuser is not None:
            are_there = words.are_there, labels.are_there
            fused = self.cross_fuser(words.states, labels.states, *are_there)
            words, labels = (replace(table, states=each) for table, each in zip((words, labels), fused, strict=True))
        if self.prompt_rep_layer is not None:
            labels = replace(labels, states=self.prompt_rep_layer(labels.states))
        return words, labels
