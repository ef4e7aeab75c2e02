"""A model as the catalog describes it: config, profiles, and the one profile a request resolves to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sie_core.contracts.family.lora import LoraConfig
from sie_core.contracts.model.card import ModelCard
from sie_core.contracts.model.weights import PinnedFile

DEFAULT_POOL = "default"
"""The public name of the pool for models whose config names none."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to serve a model's weights, after `extends` was applied."""

    name: str
    adapter_path: str | None = None
    """A registered adapter id; None lets the architecture decide."""
    max_batch_cost: int | None = None
    """The config's `max_batch_tokens`."""
    _: KW_ONLY
    compute_precision: str | None = None
    loadtime: Mapping[str, Any] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    output_types: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model of the catalog."""

    id: str
    hf_id: str | None = None
    hf_revision: str | None = None
    _: KW_ONLY
    weights_path: str | None = None
    """A local folder of weights."""
    expected: ModelCard | None = None
    """Expected content of the weights' files, as far as the config states it. Its paths are meaningless."""
    pickles: Mapping[str, PinnedFile] = field(default_factory=dict)
    """Pickled files that a family may read, restricted to tensors, if they match these pins."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """The config's `hf_tokenizer_dependencies`: repositories whose small files a load needs, with their revisions."""
    unserved: str | None = None
    """Why nothing here can serve the model, with an alternative; requests for it get this text."""
    license: str | None = None
    weightless: bool = False
    """The config's `package_backed`: the adapter brings whatever it needs."""
    inputs: tuple[str, ...] = ("text",)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """`encode`, `score`, `extract` as the config declares them; empty if the weights decide."""
    max_sequence_length: int | None = None
    accept_token_ids: bool = False
    trust_remote_code: bool = False
    """Opt-in to code that comes with the weights; False by default."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    loras: Mapping[str, LoraConfig] = field(default_factory=dict)
    """The LoRA adapters that requests may choose by name."""
    weight: float = 1.0
    """Weight of its share of the device while other models wait."""
    pool: str = DEFAULT_POOL
    """The public name, in lower case, of the pool whose workers serve it in a cluster."""
    source: str = ""
    """Origin of the config: a file, a plugin's folder, or `weights` if derived from the weights' own card."""
    text: str = field(default="", compare=False, repr=False)
    """The YAML it was read from, comments included; for weights without a config, the YAML that names them."""
    content: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """`text`, parsed to JSON values. Both are excluded from comparisons of configs."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model at one profile, named by `id` or `id:profile`."""

    id: str
    """As listed: `org/name`, or `org/name:profile` for any other profile than the default."""
    config: ModelConfig
    profile: Profile
