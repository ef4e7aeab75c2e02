"""The settings of a `Transformer` module: tokenisation, and the output taken from the model.

Anything that the runners and the tokenizer cannot do is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_text.recipe.files import TOKENS, size
from sie_text.recipe.settings import NotUnderstoodError, TransformerSettings

MODEL_KWARGS = frozenset({"dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "trust_remote_code"})
"""Arguments for the transformer's class in its settings that leave the last hidden states as they are."""

TOKENIZER_KWARGS = frozenset({"model_max_length", "padding_side", "truncation_side", "trust_remote_code"})

STATES = ("feature-extraction", "last_hidden_state")
LOGITS = ("fill-mask", "logits")
"""What modules take from a transformer: the task of its class, and the field of its output."""

FILE = "the Transformer's settings"


def transformer_settings(config: Mapping[str, Any], takes: tuple[str, str] = STATES) -> TransformerSettings:
    """Read the settings of a transformer whose `STATES` or `LOGITS` a head takes.

    Raises:
        NotUnderstoodError: They ask for something else.
    """
    task, field = takes
    if config.get("transformer_task", task) != task:
        raise NotUnderstoodError(f"{FILE} ask for the task {config['transformer_task']!r}")
    if config.get("module_output_name", TOKENS) != TOKENS:
        raise NotUnderstoodError(f"{FILE} give {config['module_output_name']!r} in place of token states")
    for name in ("config_args", "config_kwargs", "processing_kwargs", "tokenizer_name_or_path"):
        if config.get(name):
            raise NotUnderstoodError(f"{FILE} set {name}")
    _only(config, ("model_args", "model_kwargs"), MODEL_KWARGS)
    tokenizer_kwargs = _only(config, ("tokenizer_args", "processor_kwargs"), TOKENIZER_KWARGS)
    _check_modalities(config.get("modality_config"), field)
    return TransformerSettings(
        max_seq_length=size(config, "max_seq_length", FILE),
        query_length=size(config, "query_length", FILE),
        document_length=size(config, "document_length", FILE),
        do_lower_case=bool(config.get("do_lower_case", False)),
        tokenizer_kwargs=tuple(sorted(tokenizer_kwargs.items())),
    )


def refuse_expansion(config: Mapping[str, Any]) -> None:
    """Refuse query expansion if no head scores the expansion.

    Raises:
        NotUnderstoodError: The settings ask for it.
    """
    if config.get("query_expansion"):
        raise NotUnderstoodError(f"{FILE} set query_expansion")


def _only(config: Mapping[str, Any], names: tuple[str, str], known: frozenset[str]) -> dict[str, Any]:
    """Merge the arguments written under the old and the new name, except the opt-in that no file may give itself."""
    given = {key: value for name in names for key, value in (config.get(name) or {}).items()}
    unknown = sorted(set(given) - known)
    if unknown:
        raise NotUnderstoodError(f"{FILE} set {names[1]} {', '.join(unknown)}")
    return {key: value for key, value in given.items() if key != "trust_remote_code"}


def _check_modalities(modalities: Mapping[str, Any] | None, field: str) -> None:
    if modalities is None:
        return
    if "message" in modalities:
        raise NotUnderstoodError("texts go through its chat template")
    text = modalities.get("text")
    if text is None or text.get("method") != "forward" or text.get("method_output_name") != field:
        what = "last hidden states" if field == STATES[1] else field
        raise NotUnderstoodError(f"its Transformer does not take the {what} of a plain forward pass")
