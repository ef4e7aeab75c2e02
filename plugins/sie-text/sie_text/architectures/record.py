"""One model type: its layers, its class, and how the config of its checkpoints is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from sie_core.contracts import ArchitectureRecord
from sie_text.architectures.layers import Layers

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Architecture(ArchitectureRecord):
    """What there is to know about a model type; `name` is the `model_type` of `config.json`.

    transformers' class of that name computes it, or that of `like`, or `model`. It names functions and classes by
    strings, so that a list of records imports no model library.

    Raises:
        ValueError: `translate` or `model` is no string like `module:name`.
    """

    _: KW_ONLY
    like: str | None = None
    """Model type whose class computes it, and whose other fields it has where its own say nothing."""
    layers: Layers | None = None
    """None if its class alone runs it."""
    translate: str | None = None
    """`module:function` from the content of `config.json` to the fields of the class's config, or None to keep them.

    It raises `ModelLoadError` (`CONFIG`) for what the class does not compute.
    """
    model: str | None = None
    """`module:Class` of a base model that transformers lacks: a `PreTrainedModel` whose config class has the
    `model_type` `name`."""
    encoder: bool | None = None
    """Whether a checkpoint of its base model without sentence-transformers' files is taken for a text encoder.

    Default: it is.
    """
    classifier: bool | None = None
    """Whether its sequence classifiers read nothing but the last states of the base model. Default: they do not."""
    poolings: Mapping[str, str] = field(default_factory=dict)
    """For such an encoder: the values of the config's `pooling`, with the pooling of sentence-transformers that each
    is.
    """
    published: frozenset[str] = frozenset()
    """Classes of `auto_map`, without repository, that compute the same as the class that serves it."""
    published_if: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `config.json` that must be so for that."""

    def __post_init__(self) -> None:
        for name in ("translate", "model"):
            target = getattr(self, name)
            if target is not None and not (isinstance(target, str) and _TARGET.fullmatch(target)):
                raise ValueError(f"Architecture({self.name!r}): {name} is {target!r}, not a string like 'module:name'")

    @property
    def served_as(self) -> str:
        """The `model_type` of the config of the class that computes it."""
        return self.name if self.model is not None or self.like is None else self.like

    def completed(self, base: Architecture) -> Architecture:
        """Take from the record that `like` names whatever this one leaves open."""
        return replace(
            self,
            like=base.served_as,
            layers=self.layers or base.layers,
            poolings=self.poolings or base.poolings,
            encoder=base.encoder if self.encoder is None else self.encoder,
            classifier=base.classifier if self.classifier is None else self.classifier,
        )
