"""The models measured: published shapes with random weights, written as sentence-transformers does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.bench.workload.words import COMMON, RARE


@dataclass(frozen=True, slots=True)
class Shape:
    """One model's config and how its states are pooled."""

    name: str
    config: str
    """The class in transformers."""
    fields: dict[str, Any]
    special: tuple[str, ...]
    """Special tokens around a text, `$A` in its place."""
    pooling: str = "mean"
    longest: int = 512


BERT_BASE = Shape("BERT-base", "BertConfig", {}, ("[CLS]", "$A", "[SEP]"))
BGE_M3 = Shape(
    "BGE-M3",
    "XLMRobertaConfig",
    {
        "vocab_size": 250002,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 8194,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    ("<s>", "$A", "</s>"),
    pooling="cls",
)
QWEN3 = Shape(
    "Qwen3-0.6B",
    "Qwen3Config",
    {
        "vocab_size": 151936,
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "max_position_embeddings": 32768,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    },
    ("$A", "<eos>"),
    pooling="lasttoken",
)
TINY = Shape(
    "tiny",
    "BertConfig",
    {
        "vocab_size": 900,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    },
    ("[CLS]", "$A", "[SEP]"),
)
"""To try a bench on a CPU; it says nothing of speed."""
FEW_LAYERS = replace(QWEN3, name="four layers of Qwen3-0.6B", fields={**QWEN3.fields, "num_hidden_layers": 4})
TINY_DECODER = replace(
    FEW_LAYERS,
    name="a tiny decoder",
    fields={**FEW_LAYERS.fields, **TINY.fields, "num_key_value_heads": 2, "head_dim": 8},
)
SHAPES = {shape.name: shape for shape in (BERT_BASE, BGE_M3, QWEN3)}


def write_model(shape: Shape, folder: Path, dtype: torch.dtype) -> Path:
    """Write config, random weights, a tokenizer of one token a word, and the pooling; return the folder."""
    config = getattr(tf, shape.config)(**shape.fields)
    torch.manual_seed(0)
    tf.AutoModel.from_config(config, dtype=dtype).save_pretrained(folder)
    _write_tokenizer(shape, folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    chain = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(modules)
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"embedding_dimension": config.hidden_size, "pooling_mode": shape.pooling, "include_prompt": True}
    for name, content in {
        "modules.json": chain,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": shape.longest, "do_lower_case": False},
    }.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def write_splade(shape: Shape, folder: Path, dtype: torch.dtype) -> Path:
    """Write an encoder with its language head, which gives few entries of the vocabulary a weight."""
    torch.manual_seed(0)
    model = tf.AutoModelForMaskedLM.from_config(getattr(tf, shape.config)(**shape.fields), dtype=dtype)
    torch.nn.init.constant_(model.get_output_embeddings().bias, -2.0)
    model.save_pretrained(folder)
    _write_tokenizer(shape, folder)
    return folder


def _write_tokenizer(shape: Shape, folder: Path) -> None:
    around = [token for token in shape.special if token != "$A"]
    pad_id = shape.fields.get("pad_token_id", 0)
    names = ["<unk>", *around]
    names.insert(pad_id, "<pad>")
    words = [*names, *dict.fromkeys([*COMMON, *RARE])]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(shape.special), special_tokens=[(token, tokenizer.token_to_id(token)) for token in around]
    )
    tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=shape.longest,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
        pad_token="<pad>",
        unk_token="<unk>",
    ).save_pretrained(folder)
