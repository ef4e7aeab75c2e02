"""Tiny GLiNER checkpoints with random weights, one for every kind served, saved as the library saves them.

What is written is written in gliner's environment; its kinds are known here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

HIDDEN = 32
MAX_WORDS = 24
MAX_WIDTH = 4
POSITIONS = 96
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = [
    *("the", "a", "of", "and", "in", "on", "with", "old", "new", "note"),
    *("person", "place", "city", "product", "animal", "date", "food", "name", "color", "river"),
]

ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert": {"model_type": "bert", "max_position_embeddings": POSITIONS},
    "deberta": {
        "model_type": "deberta-v2",
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["p2c", "c2p"],
        "max_position_embeddings": POSITIONS,
        "position_buckets": 16,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    },
    "modernbert": {"model_type": "modernbert", "max_position_embeddings": POSITIONS, "local_attention": 16},
}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "span": {},
    "span-mean": {"subtoken_pooling": "mean", "num_rnn_layers": 0},
    "token": {"span_mode": "token_level"},
    "token-spans": {"span_mode": "token_level", "represent_spans": True, "subtoken_pooling": "last"},
    "bi-span": {"labels_encoder": "labels"},
    "bi-token": {"labels_encoder": "labels", "span_mode": "token_level"},
    "relex": {"relations_layer": "mlp", "triples_layer": "DistMult"},
    "relex-pairs": {"relations_layer": "none"},
    "relex-token": {"relations_layer": "dot", "span_mode": "token_level"},
}

SPAN_MODES: Mapping[str, Mapping[str, Any]] = {
    mode: {"span_mode": mode}
    for mode in (
        *("cat", "mlp", "query", "marker", "markerV1", "markerV2"),
        *("conv_conv", "conv_max", "conv_mean", "conv_sum", "conv_share"),
    )
}
"""Other representations of spans than the usual one, by their name in gliner."""


def write_checkpoint(folder: Path, kind: str, encoder: str = "bert", **config: Any) -> Path:
    """Save a checkpoint of `kind` whose weights have a standard deviation of 0.3 and more."""
    from gliner import GLiNER

    tokenizer = tokenizer_of(PIECES)
    tokenizer.save_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "labels")
    fields: dict[str, Any] = {
        "model_name": str(folder / "encoder"),
        "encoder_config": encoder_config(encoder, len(tokenizer)),
        "hidden_size": HIDDEN,
        "max_width": MAX_WIDTH,
        "max_len": MAX_WORDS,
        "dropout": 0.1,
        **(KINDS | SPAN_MODES)[kind],
        **config,
    }
    if "labels_encoder" in fields:
        fields["labels_encoder"] = str(folder / "labels")
        fields["labels_encoder_config"] = encoder_config("bert", len(tokenizer))
    model = GLiNER.from_config(fields, backbone_from_pretrained=False, local_files_only=True)
    randomise(model.model)
    save(model, folder / "checkpoint")
    return folder / "checkpoint"


def save(model: Any, folder: Path) -> None:
    model.save_pretrained(folder, safe_serialization=True)


def encoder_config(name: str, vocabulary: int) -> dict[str, Any]:
    return {
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * HIDDEN,
        "vocab_size": vocabulary,
        "pad_token_id": 0,
        **ENCODERS[name],
    }


def randomise(model: torch.nn.Module, seed: int = 5) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() > 1:
                tensor.normal_(0.0, 0.3, generator=generator)
            elif "norm" not in name.lower():
                tensor.normal_(0.0, 0.1, generator=generator)


def tokenizer_of(words: list[str], *, strips: bool = False, positions: int = POSITIONS) -> PreTrainedTokenizerFast:
    """Make a WordPiece tokenizer that knows `words` and single ASCII letters.

    One that `strips` gives combining marks, joiners and variation selectors no token, as BERT's does.
    """
    letters = [chr(code) for code in range(33, 127)]
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters if letter.isalnum()), *words]
    vocabulary = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=40))
    core.normalizer = normalizers.BertNormalizer(lowercase=True) if strips else normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if strips else pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=positions, **roles)
