"""The base encoders that a checkpoint names where it does not hold their config or their tokenizer.

gliner looks both up at the Hub. Here they come from the repositories that the model's config states, whose small files
the engine has fetched; the sizes of encoders that most checkpoints are trained from are in a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sie_core.contracts import ModelCard, ModelLoadError

CONFIG_FILE = "gliner_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
DEPENDENCIES = "hf_tokenizer_dependencies"
"""The field of a model's config that names the repositories."""


def _deberta(hidden: int, layers: int, vocabulary: int = 128_100) -> dict[str, Any]:
    return {
        "model_type": "deberta-v2",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocabulary,
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "max_relative_positions": -1,
        "position_buckets": 256,
        "position_biased_input": False,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    }


def _modernbert(hidden: int, layers: int, intermediate: int) -> dict[str, Any]:
    return {
        "model_type": "modernbert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": intermediate,
        "vocab_size": 50_368,
        "max_position_embeddings": 8192,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
    }


BASES: Mapping[str, Mapping[str, Any]] = {
    "microsoft/deberta-v3-xsmall": _deberta(384, 12),
    "microsoft/deberta-v3-small": _deberta(768, 6),
    "microsoft/deberta-v3-base": _deberta(768, 12),
    "microsoft/deberta-v3-large": _deberta(1024, 24),
    "microsoft/mdeberta-v3-base": _deberta(768, 12, vocabulary=251_000),
    "answerdotai/ModernBERT-base": _modernbert(768, 22, 1152),
    "answerdotai/ModernBERT-large": _modernbert(1024, 28, 2624),
}
"""The config of each, as far as it differs from transformers' defaults or those may change."""


def base_config(name: object, tokenizers: Mapping[str, Path]) -> Mapping[str, Any] | None:
    """Return the config of a base encoder: that of its fetched repository, else that of the table; None for another.

    Raises:
        ModelLoadError: `CORRUPT`: the repository's config.json cannot be read.
    """
    folder = tokenizers.get(name) if isinstance(name, str) else None
    file = None if folder is None else folder / "config.json"
    if file is None or not file.is_file():
        return BASES.get(name) if isinstance(name, str) else None
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"config.json of {name} cannot be read as JSON.") from error
    return config if isinstance(config, dict) else None


def find_tokenizer(card: ModelCard, inside: str, base: object, tokenizers: Mapping[str, Path]) -> ModelCard:
    """Find the files of a tokenizer: in the folder `inside` of a checkpoint, else in the base encoder's repository.

    Raises:
        ModelLoadError: `CONFIG`: they are in neither; says what to state.
    """
    start = f"{inside}/" if inside else ""
    if f"{start}{TOKENIZER_CONFIG}" in card.files:
        files = (name.removeprefix(start) for name in card.files if name.startswith(start))
        return ModelCard(card.path / inside, {}, files=tuple(name for name in files if "/" not in name))
    folder = tokenizers.get(base) if isinstance(base, str) else None
    if folder is not None:
        return ModelCard(folder, {}, files=tuple(sorted(file.name for file in folder.iterdir() if file.is_file())))
    raise ModelLoadError(
        "CONFIG",
        f"The folder of weights holds no {start}{TOKENIZER_CONFIG}, and the model's config names no repository that "
        f"has the tokenizer. State it there, `{DEPENDENCIES}: {{{base or 'org/base-encoder'}: main}}`, or put its "
        "files beside the weights.",
    )
