"""What a model's weights declare: facts of `config.json` and of the sentence-transformers files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from sie_core.contracts.model.architectures import ArchitectureRecord


@dataclass(frozen=True, slots=True)
class ModuleCard:
    """One entry of `modules.json`: a sentence-transformers module and its own config file's content."""

    name: str
    type: str
    """The dotted class path as written, e.g. `sentence_transformers.models.Pooling`."""
    path: Path
    _: KW_ONLY
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The class name alone, e.g. `Pooling`."""
        return self.type.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The facts read from a folder of weights, without loading any of them."""

    path: Path
    config: Mapping[str, Any]
    """`config.json`, or an empty mapping if the folder has none."""
    modules: tuple[ModuleCard, ...] = ()
    """`modules.json` in its order; empty for a plain transformers checkpoint."""
    _: KW_ONLY
    sentence_transformers: Mapping[str, Any] = field(default_factory=dict)
    """`config_sentence_transformers.json`: prompts, default prompt name, similarity."""
    files: tuple[str, ...] = ()
    """Every file, relative to `path`, with `/` between folders."""
    records: Mapping[str, ArchitectureRecord] = field(default_factory=dict, compare=False, repr=False)
    """What plugins registered by `sie_architectures`, by model type: `config` is read by them."""

    @property
    def model_type(self) -> str | None:
        """The transformers model type, e.g. `bert`."""
        value = self.config.get("model_type")
        return value if isinstance(value, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names the checkpoint was saved from, e.g. `("BertModel",)`."""
        value = self.config.get("architectures")
        return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()
