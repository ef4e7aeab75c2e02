"""The numbers and rules of a model that `config.json` states, for the model types of `FORMS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_text.architectures import (
    ACTIVATIONS,
    Architecture,
    Feature,
    Layers,
    architecture_of,
    find_architecture,
    translate,
)
from sie_text.recipe import NotUnderstoodError

from sie_core.contracts import ModelCard
from sie_cpu.checkpoint.forms import FORMS, Form
from sie_cpu.checkpoint.rotary import KINDS, frequencies

FULL, SLIDING = "full_attention", "sliding_attention"
POSITIONS = (None, "absolute")
ROTATED = (*POSITIONS, "rotary", "rope")
"""Values of `position_embedding_type`: of models with a table of positions, and of those that rotate."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a config says of the forward pass."""

    model_type: str
    """That of the class that computes it."""
    form: Form
    row: Layers
    hidden: int
    count: int
    """Layers."""
    heads: int
    key_heads: int
    head_size: int
    activation: str
    """transformers' name."""
    epsilon: float
    scale: float
    """Factor of the attention scores."""
    causal: bool
    kinds: tuple[str, ...]
    """The kind of attention of each layer, in transformers' words."""
    windows: tuple[int | None, ...]
    """For each layer: token i sees token j only if |i - j| is smaller; None sees all."""
    turns: Mapping[str, NDArray[np.float32]]
    """Rotary frequencies of each kind of layer with angles of its own, or of all under the name ``""``."""
    longest: int | None
    """`max_position_embeddings`, of a model without a table of positions; None if positions are relative."""
    config: Mapping[str, Any]
    """All fields, with defaults."""

    def angles_of(self) -> list[int]:
        """Return for each layer which of `turns` it has, by its place there."""
        names = list(self.turns)
        return [names.index(kind) if kind in names else 0 for kind in self.kinds]


def form_of(card: ModelCard) -> tuple[Architecture, Form]:
    """Find the record of a checkpoint's model type, and its form.

    Raises:
        NotUnderstoodError: There is none.
    """
    record = architecture_of(card)
    if record is None or record.layers is None:
        raise NotUnderstoodError(f"no record describes the layers of {card.model_type}")
    base = find_architecture(record.served_as, card.records) or record
    form = FORMS.get(record.served_as)
    if form is None or base.model is not None:
        raise NotUnderstoodError(f"the embeddings of {card.model_type} are known to PyTorch's classes alone")
    return record, form


def read_settings(card: ModelCard, features: frozenset[Feature]) -> Settings:
    """Read the config of a checkpoint whose layers have no other `features`.

    Raises:
        NotUnderstoodError: It asks for something that is not computed here.
        ModelLoadError: `CONFIG`: nobody computes it.
    """
    record, form = form_of(card)
    try:
        translated = translate(card.config, card.records)
        fields = card.config if translated is None else translated[1]
        config = {**form.defaults, **{name: value for name, value in fields.items() if value is not None}}
        return _settings(record, form, {**_feed_forward(config), **config}, features)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise NotUnderstoodError(f"its config.json is not one of a {record.served_as} ({error!r})") from error


def _settings(record: Architecture, form: Form, config: Mapping[str, Any], features: frozenset[Feature]) -> Settings:
    def field(name: str) -> Any:
        return config.get(form.fields.get(name, name))

    assert record.layers is not None
    row = record.layers.of_config(SimpleNamespace(**config))
    hidden, count, heads = (int(field(name)) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    key_heads = int(field("num_key_value_heads") or heads) if row.groups else heads
    head_size = int(field("head_dim") or 0) if row.groups or "head_dim" in form.fields else 0
    head_size = head_size or hidden // heads
    terms = 3 if row.disentangled else 1
    kinds = _kinds(row, config, count)
    causal = row.causal and not config.get("use_bidirectional_attention") and bool(config.get("is_causal", True))
    windows = _windows(row, config, kinds)
    activation = str(field("hidden_act"))
    turns = {} if row.rotary is None else _turns(record.served_as, form, config, kinds, head_size)
    _refuse(form, config, rotates=row.rotary is not None)
    _require(
        row,
        activation,
        features,
        {Feature.WINDOWS: any(windows), Feature.CAUSAL: causal, Feature.GROUPS: key_heads < heads},
    )
    if min(hidden, count, heads, key_heads, head_size) < 1 or heads % key_heads:
        raise NotUnderstoodError(f"its {heads} heads do not share {key_heads} heads of keys evenly")
    relative = row.disentangled and not config.get("position_biased_input", True)
    relative |= row.bias is not None and form.positions is None
    return Settings(
        record.served_as,
        form,
        row,
        hidden,
        count,
        heads,
        key_heads,
        head_size,
        activation,
        epsilon=float(config[form.epsilon]) if isinstance(form.epsilon, str) else form.epsilon,
        scale=float(config.get("query_pre_attn_scalar") or terms * head_size) ** -0.5 if row.scaled else 1.0,
        causal=causal,
        kinds=kinds,
        windows=windows,
        turns=turns,
        longest=None if relative else int(config["max_position_embeddings"]),
        config=config,
    )


def _feed_forward(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read T5's name of a feed-forward part, such as `relu` or `gated-gelu`."""
    stated = config.get("feed_forward_proj")
    if stated is None:
        return {}
    kind, _, activation = str(stated).rpartition("-")
    return {"is_gated_act": kind == "gated", "dense_act_fn": "gelu_new" if stated == "gated-gelu" else activation}


def _kinds(row: Layers, config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """List the kind of attention of each layer, as the class derives it where the config lists none."""
    stated = config.get("layer_types")
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        if len(stated) != count or not {*stated} <= {FULL, SLIDING}:
            raise NotUnderstoodError(f"its config.json lists the layers {stated!r}")
        return tuple(stated)
    if row.window != "sliding layers":
        return (FULL,) * count
    if "local_attention" in config:  # ModernBERT
        each = int(config.get("global_attn_every_n_layers", 3))
        return tuple(SLIDING if number % each else FULL for number in range(count))
    if "max_window_layers" in config:  # Qwen
        wide = config.get("use_sliding_window") and config.get("sliding_window")
        return tuple(SLIDING if wide and number >= config["max_window_layers"] else FULL for number in range(count))
    each = int(config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6)  # Gemma
    return tuple(SLIDING if (number + 1) % each else FULL for number in range(count))


def _windows(row: Layers, config: Mapping[str, Any], kinds: Sequence[str]) -> tuple[int | None, ...]:
    width = config.get("sliding_window")
    if "local_attention" in config:
        width = int(config["local_attention"]) // 2
    elif "max_window_layers" in config and not config.get("use_sliding_window"):
        width = None
    elif width is not None and config.get("use_bidirectional_attention"):
        width = int(width) // 2 + 1
    if row.window is None or width is None:
        return (None,) * len(kinds)
    width = int(width) + row.window_beyond
    return tuple(width if row.window == "every layer" or kind == SLIDING else None for kind in kinds)


def _turns(
    model_type: str, form: Form, config: Mapping[str, Any], kinds: Sequence[str], head_size: int
) -> dict[str, NDArray[np.float32]]:
    """Compute the frequencies of each kind of layer."""
    nested, older = config.get("rope_parameters") or {}, config.get("rope_scaling") or {}
    longest = int(config["max_position_embeddings"])
    if "partial_rotary_factor" in config:
        older = {"partial_rotary_factor": config["partial_rotary_factor"], **older}
    thetas = form.thetas or {"": (("rope_theta",), 10_000.0)}
    found = {}
    for kind in sorted(set(kinds)) if FULL in thetas else [""]:
        names, default = thetas[kind]
        theta = float(next((config[name] for name in names if name in config), default))
        # Older configs of Gemma scale the layers that see everything alone.
        scaling = {} if model_type == "gemma3_text" and kind == SLIDING else older
        stated = {**scaling, **(nested.get(kind) or {} if kind else nested)}
        if any(isinstance(each, Mapping) for each in stated.values()):
            raise NotUnderstoodError(
                "its config.json states rotary positions for kinds of layers that it does not have"
            )
        turns = frequencies(stated, theta, head_size, longest)
        if turns is None:
            kind_of = stated.get("rope_type") or stated.get("type")
            raise NotUnderstoodError(
                f"its rotary positions are of the kind {kind_of!r}, and {', '.join(KINDS)} are computed"
            )
        found[kind] = turns
    return found


def _refuse(form: Form, config: Mapping[str, Any], *, rotates: bool) -> None:
    """Refuse configs that ask for something else than is computed here."""
    refused = {
        **form.refused,
        "is_decoder": (None, False),
        "add_cross_attention": (None, False),
        "position_embedding_type": ROTATED if rotates else POSITIONS,
    }
    for name, known in refused.items():
        if config.get(name) not in known:
            raise NotUnderstoodError(f"its config.json sets {name}={config.get(name)!r}, which is not computed")


def _require(row: Layers, activation: str, features: frozenset[Feature], present: Mapping[Feature, bool]) -> None:
    if activation not in ACTIVATIONS:
        raise NotUnderstoodError(f"its activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
    lacking = sorted(each for each in {*row.features, ACTIVATIONS[activation]} - features if present.get(each, True))
    if lacking:
        raise NotUnderstoodError(f"its layers have {' and '.join(lacking)}, which the kernels do not compute")
