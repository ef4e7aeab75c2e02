"""Discovery of plugins into a `PluginSet`: a value, passed to whoever needs it, with a report for each plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sie_core.contracts import DeviceProbe, ModelFamily, OutputDtype, RunnerSpec, WeightPackage, WeightTierFactory
from sie_core.contracts.batching import BatchPolicyFactory

PluginState = Literal["active", "broken", "blocked"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What became of one entry point."""

    name: str
    """The entry point's name, or `sie_core.defaults.…` for a built-in."""
    distribution: str
    version: str
    module: str
    state: PluginState
    cause: str | None = None
    """Why it is broken, for the operator."""
    registers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hook name to the names of what was registered."""


@dataclass(frozen=True, slots=True)
class PluginSet:
    """Everything the installed plugins registered."""

    reports: tuple[PluginReport, ...] = ()
    families: Mapping[str, ModelFamily] = field(default_factory=dict)
    runners: tuple[RunnerSpec, ...] = ()
    model_folders: tuple[Path, ...] = ()
    batch_policies: Mapping[str, BatchPolicyFactory] = field(default_factory=dict)
    device_probes: tuple[DeviceProbe, ...] = ()
    weight_tiers: tuple[WeightTierFactory, ...] = ()
    weight_packages: tuple[WeightPackage, ...] = ()
    output_dtypes: Mapping[str, OutputDtype] = field(default_factory=dict)
