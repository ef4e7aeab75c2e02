"""Encoders over the words of a text, which some checkpoints have before they represent spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import DebertaV2Config, ModernBertConfig, ModernBertModel
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder

from sie_core.contracts import ModelLoadError
from sie_gliner.checkpoint.bases import CONFIG_FILE

KINDS = ("deberta-v2", "modernbert", "rnn")


class ContextEncoder(nn.Module):
    """An encoder over dense states, with projections to its width and back if the widths differ."""

    def __init__(self, written: Mapping[str, Any], size: int) -> None:
        """Make the encoder that a config's `span_encoder_config` describes, for states of `size`.

        Raises:
            ModelLoadError: `CONFIG`: it is of no known kind, or wrong.
        """
        super().__init__()
        fields = dict(written)
        self._kind = fields.pop("model_type", None)
        if self._kind not in KINDS:
            raise ModelLoadError(
                "CONFIG",
                f"{CONFIG_FILE}: span_encoder_config has the model_type {self._kind!r}, and must have one of "
                f"{', '.join(KINDS)}.",
            )
        width = fields.setdefault("hidden_size", size)
        fields.setdefault("num_hidden_layers", 1)
        self.input_projection = nn.Identity() if width == size else nn.Linear(size, width)
        self.output_projection = nn.Identity() if width == size else nn.Linear(width, size)
        try:
            # Not on the meta device: rotary frequencies are in no file.
            with torch.device("cpu"):
                self.encoder: Any = _MADE[self._kind](fields)
        except (TypeError, ValueError, KeyError) as error:
            raise ModelLoadError("CONFIG", f"{CONFIG_FILE}: no encoder can be made of span_encoder_config.") from error

    def forward(self, words: torch.Tensor, are_words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Run `[rows, words, size]`; positions without a word become 0.

        Args:
            words: The states of words.
            are_words: bool `[rows, words]`: mask of the existing words.
            lengths: Their number in each row, on the CPU.
        """
        states = self.input_projection(words)
        if self._kind == "rnn":
            packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=words.shape[1])
        elif self._kind == "modernbert":
            states = self.encoder(inputs_embeds=states, attention_mask=are_words.long()).last_hidden_state
        else:
            states = self.encoder(states, attention_mask=are_words.long(), return_dict=True).last_hidden_state
        result: torch.Tensor = self.output_projection(states)
        return result.masked_fill(~are_words[..., None], 0)


def _lstm(fields: dict[str, Any]) -> nn.LSTM:
    if fields.get("rnn_type", "lstm").lower() != "lstm":
        raise ValueError("no LSTM")
    both = fields.get("bidirectional", True)
    width = fields["hidden_size"]
    return nn.LSTM(width, width // (1 + both), fields["num_hidden_layers"], batch_first=True, bidirectional=both)


def _deberta(fields: dict[str, Any]) -> DebertaV2Encoder:
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 512}
    return DebertaV2Encoder(DebertaV2Config(**(relative | _sizes(fields) | fields))).eval()


def _modernbert(fields: dict[str, Any]) -> ModernBertModel:
    # Its table of tokens, which nothing looks up, has one row in the files.
    one = {"vocab_size": 1} | {f"{role}_token_id": 0 for role in ("pad", "bos", "eos", "cls", "sep")}
    return ModernBertModel(ModernBertConfig(**(_sizes(fields) | fields | one | {"tie_word_embeddings": False}))).eval()


def _sizes(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return gliner's defaults: heads of 64 if the width is divisible, and a wide feed-forward part."""
    width = fields["hidden_size"]
    heads = next(number for number in range(max(1, width // 64), 0, -1) if width % number == 0)
    return {"num_attention_heads": heads, "intermediate_size": 4 * width}


_MADE = {"rnn": _lstm, "deberta-v2": _deberta, "modernbert": _modernbert}
