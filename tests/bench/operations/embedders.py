"""Embedders in the shapes of Qwen3-Embedding-0.6B, EmbeddingGemma-300M and all-mpnet-base-v2, with random weights.

The vocabulary is MiniLM's: the real ones would only lengthen the table that tokens are looked up in.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

QWEN3 = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
}  # fmt: skip
GEMMA = {
    "hidden_size": 768, "num_hidden_layers": 24, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 256,
    "intermediate_size": 1152, "max_position_embeddings": 2048, "query_pre_attn_scalar": 256, "sliding_window": 512,
}  # fmt: skip
MPNET = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
PROJECTED = 4
"""EmbeddingGemma projects its mean to so many times its width, and back."""
TINY = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "intermediate_size": 64,
}  # fmt: skip
"""What tiny models have of each."""


def write_qwen3(folder: Path, tokenizer: Any, *, tiny: bool) -> None:
    """Write Qwen3-Embedding-0.6B's layers: the last token's state is the vector. As published, in bfloat16."""
    import torch
    from transformers import Qwen3Config, Qwen3Model

    model = Qwen3Model(Qwen3Config(**_fields(QWEN3, tokenizer, tiny=tiny)))
    # The library computes in the weights' precision; tiny models are compared more closely than bfloat16 allows.
    _save(folder, model if tiny else model.to(torch.bfloat16), tokenizer, "lasttoken")


def write_gemma(folder: Path, tokenizer: Any, *, tiny: bool) -> None:
    """Write EmbeddingGemma-300M's layers, every sixth attending to all tokens, and its two projections of the mean."""
    from transformers import Gemma3TextConfig, Gemma3TextModel

    fields = _fields(GEMMA, tokenizer, tiny=tiny)
    model = Gemma3TextModel(Gemma3TextConfig(**fields, use_bidirectional_attention=True))
    _save(folder, model, tokenizer, "mean", PROJECTED)


def write_mpnet(folder: Path, tokenizer: Any, *, tiny: bool) -> None:
    """Write all-mpnet-base-v2's layers, whose attention has a bias for each distance; the mean is the vector."""
    from transformers import MPNetConfig, MPNetModel

    _save(folder, MPNetModel(MPNetConfig(**_fields(MPNET, tokenizer, tiny=tiny))), tokenizer, "mean")


def _fields(full: dict[str, Any], tokenizer: Any, *, tiny: bool) -> dict[str, Any]:
    special = {"pad_token_id": 0, "bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    return {**full, **(TINY if tiny else {}), **special, "vocab_size": len(tokenizer)}


def _save(folder: Path, model: Any, tokenizer: Any, pooling: str, projected: int = 0) -> None:
    """Save a model as sentence-transformers does, with the projections after its pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = folder.with_name(f"{folder.name}.base")
    model.eval().save_pretrained(base)
    tokenizer.save_pretrained(base)
    body = Transformer(str(base), max_seq_length=tokenizer.model_max_length)
    width = model.config.hidden_size
    inner = projected * width
    steps = [(width, inner), (inner, width)] if projected else []
    dense = [Dense(*step, bias=False, activation_function=torch.nn.Identity()) for step in steps]
    whole = SentenceTransformer(modules=[body, Pooling(width, pooling), *dense, Normalize()], device="cpu")
    whole.save_pretrained(str(folder), create_model_card=False)
    shutil.rmtree(base)
