"""The heads of transformers' own classes, as layers by the names of their weights, for the classes listed here.

`sie-pytorch` runs the class itself and so serves every class; without PyTorch these are served, and others refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sie_core.contracts import ModelCard, ModelLoadError
from sie_text.heads.vectors.layers import LayerNorm, Linear
from sie_text.heads.weights import read_first
from sie_text.recipe import NotUnderstoodError, PoolingMode

ACTIVATION_CLASSES: Mapping[str, str] = {
    "gelu": "GELU",
    "linear": "Identity",
    "mish": "Mish",
    "relu": "ReLU",
    "sigmoid": "Sigmoid",
    "silu": "SiLU",
    "swish": "SiLU",
    "tanh": "Tanh",
}
"""transformers' names of activations, and the class of `torch.nn` of each."""
EPSILONS: Mapping[str, float] = {"layer_norm_eps": 1e-12, "norm_eps": 1e-5}
"""Keys of `config.json` for the constant of a layer norm, and transformers' defaults."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a class."""

    names: tuple[str, ...]
    """The places of its `weight` and its `bias`, in the order of search; a tied weight is at the embedding."""
    activation: str | None = None
    """transformers' name of its activation, or the key of `config.json` that holds one."""
    norm: str | None = None
    """Of a layer norm, the key of `config.json` for its constant; None for a linear layer."""
    bias: Literal["always", "perhaps"] = "always"


@dataclass(frozen=True, slots=True)
class Layout:
    """The head of a class."""

    layers: tuple[Layer, ...]
    pooling: PoolingMode = "cls"
    """The state that a classifier reads of a sequence; `config.json` may say otherwise (`classifier_pooling`)."""
    skips_padding: bool = False
    """Whether padding that a text spells out is no last token."""


_POOLED = Layout((Layer(("pooler.dense",), "tanh"), Layer(("classifier",))))
_PROJECTED = Layout((Layer(("classifier.dense",), "tanh"), Layer(("classifier.out_proj",))))
_MODERN = (
    Layer(("head.dense",), "classifier_activation", bias="perhaps"),
    Layer(("head.norm",), norm="norm_eps", bias="perhaps"),
)
_DECODER = Layout((Layer(("score",), bias="perhaps"),), "lasttoken", skips_padding=True)

CLASSIFIERS: Mapping[str, Layout] = {
    "Bert": _POOLED,
    "Camembert": _PROJECTED,
    "DebertaV2": Layout((Layer(("pooler.dense",), "pooler_hidden_act"), Layer(("classifier",)))),
    "DistilBert": Layout((Layer(("pre_classifier",), "relu"), Layer(("classifier",)))),
    "Electra": Layout((Layer(("classifier.dense",), "gelu"), Layer(("classifier.out_proj",)))),
    "Ernie": _POOLED,
    "Llama": _DECODER,
    "Mistral": _DECODER,
    "ModernBert": Layout((*_MODERN, Layer(("classifier",)))),
    "Qwen2": _DECODER,
    "Qwen3": _DECODER,
    "Roberta": _PROJECTED,
    "XLMRoberta": _PROJECTED,
}
"""By the name of a class before `ForSequenceClassification`."""

_LABELLED = Layout((Layer(("classifier",)),))
TOKEN_CLASSIFIERS: Mapping[str, Layout] = {
    "Bert": _LABELLED,
    "Camembert": _LABELLED,
    "DebertaV2": _LABELLED,
    "DistilBert": _LABELLED,
    "Electra": _LABELLED,
    "Ernie": _LABELLED,
    "ModernBert": Layout((*_MODERN, Layer(("classifier",)))),
    "Qwen2": Layout((Layer(("score",)),)),
    "Qwen3": Layout((Layer(("score",)),)),
    "Roberta": _LABELLED,
    "XLMRoberta": _LABELLED,
}
"""By the name of a class before `ForTokenClassification`."""

_EMBEDDED = "embeddings.word_embeddings"
_BERT = Layout(
    (
        Layer(("cls.predictions.transform.dense",), "hidden_act"),
        Layer(("cls.predictions.transform.LayerNorm",), norm="layer_norm_eps"),
        Layer(("cls.predictions.decoder", "cls.predictions", _EMBEDDED)),
    )
)
_ROBERTA = Layout(
    (
        Layer(("lm_head.dense",), "gelu"),
        Layer(("lm_head.layer_norm",), norm="layer_norm_eps"),
        Layer(("lm_head.decoder", "lm_head", _EMBEDDED)),
    )
)
MASKED_LANGUAGE: Mapping[str, Layout] = {
    "Bert": _BERT,
    "Camembert": _ROBERTA,
    "DistilBert": Layout(
        (
            Layer(("vocab_transform",), "activation"),
            Layer(("vocab_layer_norm",), norm="layer_norm_eps"),
            Layer(("vocab_projector", _EMBEDDED)),
        )
    ),
    "Electra": Layout(
        (
            Layer(("generator_predictions.dense",), "gelu"),
            Layer(("generator_predictions.LayerNorm",), norm="layer_norm_eps"),
            Layer(("generator_lm_head", _EMBEDDED)),
        )
    ),
    "Ernie": _BERT,
    "ModernBert": Layout((*_MODERN, Layer(("decoder", "embeddings.tok_embeddings"), bias="perhaps"))),
    "Roberta": _ROBERTA,
    "XLMRoberta": _ROBERTA,
}
"""By the name of a class before `ForMaskedLM`."""

VOCABULARY = frozenset({"Llama", "Mistral", "Qwen2", "Qwen3"})
"""Classes whose logits are a plain projection of the last state, by their names before `ForCausalLM`."""


def find_layout(card: ModelCard, layouts: Mapping[str, Layout], suffix: str) -> Layout:
    """Find the head of the class that a checkpoint was saved from.

    Raises:
        NotUnderstoodError: It is none of these classes.
    """
    layout = layouts.get(class_before(card, suffix) or "")
    if layout is None:
        known = ", ".join(sorted(layouts))
        raise NotUnderstoodError(
            f"it was saved from {', '.join(card.architectures) or 'no class'}, and without PyTorch the heads of "
            f"{known} are read ({suffix})"
        )
    return layout


def class_before(card: ModelCard, suffix: str) -> str | None:
    """Return the name of a checkpoint's class before `suffix`; None if it was saved from none that ends so."""
    return next((name.removesuffix(suffix) for name in card.architectures if name.endswith(suffix)), None)


def read_layers(card: ModelCard, layout: Layout) -> list[Linear | LayerNorm]:
    """Read the layers of a head from the checkpoint's files.

    Raises:
        ModelLoadError: `CORRUPT`: a weight is missing, or a file is damaged.
        NotUnderstoodError: `config.json` names an activation that is none of `ACTIVATION_CLASSES`.
    """
    return [_read(card, layer) for layer in layout.layers]


def _read(card: ModelCard, layer: Layer) -> Linear | LayerNorm:
    weight = read_first(card.path, [f"{name}.weight" for name in layer.names])
    bias = read_first(card.path, [f"{name}.bias" for name in layer.names])
    if weight is None or (bias is None and layer.bias == "always"):
        lacking = f"{layer.names[0]}.{'weight' if weight is None else 'bias'}"
        raise ModelLoadError("CORRUPT", f"The checkpoint has no whole head of its class: it lacks {lacking}.")
    if layer.norm is not None:
        return LayerNorm(weight, bias, float(card.config.get(layer.norm, EPSILONS[layer.norm])))
    return Linear(weight, bias, _activation(card, layer.activation))


def _activation(card: ModelCard, name: str | None) -> str:
    if name is None:
        return "Identity"
    written = name if name in ACTIVATION_CLASSES else card.config.get(name, "gelu")
    if written not in ACTIVATION_CLASSES:
        raise NotUnderstoodError(f"config.json names the activation {written!r} for its head")
    return ACTIVATION_CLASSES[written]
