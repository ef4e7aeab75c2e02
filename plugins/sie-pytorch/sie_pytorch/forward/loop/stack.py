"""A model's layers as the record of its type describes them: modules by name, sizes and rules from the config.

For runners with their own layers. Everything here is read from transformers' model; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from sie_text.architectures import ACTIVATIONS, Bias, Feature, Layers, PreNorm

from sie_pytorch.forward.loop.bias import RelativeBias
from sie_pytorch.forward.protocol import RunnerUnfitError

SLIDING = "sliding_attention"


@dataclass(frozen=True, slots=True)
class NormNumbers:
    """A norm's weight, bias and epsilon."""

    weight: torch.Tensor
    """`[size]`, counted from zero, in the precision of the checkpoint."""
    bias: torch.Tensor | None
    """`[size]`; None without a bias."""
    epsilon: float


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """The norms of one layer, in the order of their use; None if a norm is missing."""

    before: torch.nn.Module | None
    """Norm of the attention's input."""
    post_attention_norm: torch.nn.Module | None
    """Norm of the attention's output, before the residual sum."""
    attention: torch.nn.Module
    """Norm of the sum, the input of the feed-forward part."""
    _: KW_ONLY
    post_mlp_norm: torch.nn.Module | None
    """Norm of the feed-forward output, before the residual sum."""
    output: torch.nn.Module
    """Norm of the sum, the input of the next layer or the result; in a pre-norm model, the first norm of the next
    layer.
    """


class LayerStack:
    """The layers of a model, with the relevant values of its config."""

    def __init__(self, model: Any, layers: Layers | None, computes: frozenset[str]) -> None:
        """Find the layers in the model.

        Args:
            model: transformers' base model.
            layers: Its layers by the record of its type: `RunnerContext.layers`.
            computes: The features that the runner computes: `RunnerContext.features`.

        Raises:
            RunnerUnfitError: No record describes the layers, the model is configured as a decoder, or its layers need
                something that the runner does not compute.
            AttributeError: The layers do not match the record.
        """
        self._config = config = model.config
        if layers is None:
            raise RunnerUnfitError(f"no record describes the layers of {config.model_type}")
        if getattr(config, "is_decoder", False):
            raise RunnerUnfitError("it is configured as a decoder")
        self._model = model
        self.row = layers.of_config(config)
        self.modules: list[torch.nn.Module] = list(model.get_submodule(self.row.layers))
        self.heads: int = config.num_attention_heads
        self.key_heads: int = (getattr(config, "num_key_value_heads", None) if self.row.groups else None) or self.heads
        self.head_size = plain_linear(self.modules[0], self.row.attention_output).in_features // self.heads
        terms = 3 if self.row.disentangled else 1
        scalar = getattr(config, "query_pre_attn_scalar", None) or terms * self.head_size
        self.scale: float = scalar**-0.5 if self.row.scaled else 1.0
        """Factor of the attention scores."""
        self.causal = self.row.causal and is_causal(config)
        self.bias = None if layers.bias is None else _bias_of(model, layers.bias)
        """Biases of the attention scores by distance."""
        names = ("hidden_act", "activation", "hidden_activation", "dense_act_fn")
        self.activation = str(next((found for name in names if (found := getattr(config, name, None))), None))
        """transformers' name of the feed-forward activation."""
        self._require(computes)

    def _require(self, computes: frozenset[str]) -> None:
        if self.activation not in ACTIVATIONS:
            raise RunnerUnfitError(f"its activation {self.activation!r} is none of {', '.join(ACTIVATIONS)}")
        present = {
            Feature.WINDOWS: any(self.windows()),
            Feature.CAUSAL: self.causal,
            Feature.GROUPS: self.key_heads < self.heads,
        }
        needed = {*self.row.features, ACTIVATIONS[self.activation]}
        lacking = sorted(each for each in needed - computes if present.get(each, True))
        if lacking:
            raise RunnerUnfitError(f"its layers have {' and '.join(lacking)}, which this runner does not compute")
        if self.heads % self.key_heads:
            raise RunnerUnfitError(f"its {self.heads} heads do not share {self.key_heads} heads of keys evenly")

    def windows(self) -> list[int | None]:
        """Return each layer's window: token i sees token j only if |i - j| is smaller; None sees all.

        Read from the config at every call, because the proof at load narrows it temporarily.
        """
        width = None if self.row.window is None else getattr(self._config, "sliding_window", None)
        if width is None:
            return [None] * len(self.modules)
        width += self.row.window_beyond
        every = self.row.window == "every layer"
        return [width if every or kind == SLIDING else None for kind in self.kinds()]

    def kinds(self) -> list[str]:
        """Name the kind of attention of each layer, in transformers' words."""
        return list(getattr(self._config, "layer_types", None) or ["full_attention"] * len(self.modules))

    def norms(self) -> Iterator[LayerNorms]:
        """Yield the norms of each layer.

        Raises:
            AttributeError: A norm is not where the row says.
        """
        names = self.row.norms
        if not isinstance(names, PreNorm):
            for layer in self.modules:
                attention, output = layer.get_submodule(names.attention), layer.get_submodule(names.output)
                yield LayerNorms(None, None, attention, post_mlp_norm=None, output=output)
            return
        firsts = [layer.get_submodule(names.attention) for layer in self.modules]
        following = [*firsts[1:], self._model.get_submodule(names.final)]
        for layer, first, output in zip(self.modules, firsts, following, strict=True):
            post_attention_norm, post_mlp_norm = (
                None if name is None else layer.get_submodule(name)
                for name in (names.post_attention_norm, names.post_mlp_norm)
            )
            before = None if isinstance(first, torch.nn.Identity) else first
            yield LayerNorms(
                before,
                post_attention_norm,
                layer.get_submodule(names.feed_forward),
                post_mlp_norm=post_mlp_norm,
                output=output,
            )

    def numbers(self, norm: torch.nn.Module, *, of_head: bool = False) -> NormNumbers:
        """Read weight, bias and epsilon of a norm; `of_head`: a norm of queries or keys, always RMSNorm.

        Raises:
            RunnerUnfitError: The norm is not the one that the row names.
        """
        found, kind = type(norm).__name__, self.row.norm
        if kind == "layer" and not of_head:
            if not isinstance(norm, torch.nn.LayerNorm) or norm.weight is None:
                raise RunnerUnfitError(f"it normalises with {found}, not LayerNorm with a weight")
            return NormNumbers(norm.weight.detach(), None if norm.bias is None else norm.bias.detach(), norm.eps)
        epsilon = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
        weight = getattr(norm, "weight", None)
        if isinstance(norm, torch.nn.LayerNorm) or epsilon is None or weight is None:
            raise RunnerUnfitError(f"it normalises with {found}, not RMSNorm with a weight")
        counted = weight.detach()
        return NormNumbers(1 + counted.float() if kind == "rms from one" else counted, None, float(epsilon))

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """List the linear layers of every layer: out and in, by dotted name below the model."""
        shapes = {}
        for number, layer in enumerate(self.modules):
            for part in self.row.linear:
                weight = plain_linear(layer, part).weight
                shapes[f"{self.row.layers}.{number}.{part}"] = (weight.shape[0], weight.shape[1])
        return shapes


def _bias_of(model: Any, stated: Bias) -> RelativeBias:
    farthest = stated.farthest if isinstance(stated.farthest, int) else int(getattr(model.config, stated.farthest))
    return RelativeBias(model.get_submodule(stated.table).weight, farthest)


def is_causal(config: Any) -> bool:
    """Whether a config leaves a causal architecture causal."""
    return not getattr(config, "use_bidirectional_attention", False) and bool(getattr(config, "is_causal", True))


def plain_linear(layer: torch.nn.Module, name: str) -> torch.nn.Linear:
    """Return one of the linear layers of a layer.

    Raises:
        RunnerUnfitError: It is no plain linear layer.
        AttributeError: None has this name.
    """
    module = layer.get_submodule(name)
    if type(module) is not torch.nn.Linear:
        raise RunnerUnfitError(f"its {name} is a {type(module).__name__}, not a plain linear layer")
    return module
