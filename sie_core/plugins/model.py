"""The result of discovery: everything the plugins registered, and a report for each of them. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sie_core.contracts import (
    ArchitectureRecord,
    DeviceProbe,
    ModelCard,
    ModelFamily,
    ObjectStoreFactory,
    OutputDtype,
    PluginError,
    PluginSetting,
    Postprocessor,
    QueueTransportFactory,
    Reference,
    RunnerSpec,
    WeightPackage,
    WeightTierFactory,
)
from sie_core.contracts.device.memory import MemoryManagerFactory
from sie_core.contracts.device.scheduling import SchedulerFactory
from sie_core.contracts.model.weights import SAFETENSORS
from sie_core.plugins.calls import Calls
from sie_core.plugins.faults import Fault, Faults
from sie_core.plugins.registration import REGISTRATIONS

if TYPE_CHECKING:
    from sie_core.settings import Settings

Made = TypeVar("Made")
UNKNOWN = "a plugin that no report names"
PluginState = Literal["active", "failing", "broken", "blocked"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The result of loading one entry point."""

    name: str
    """The entry point's name, or `sie_core.defaults.…` for a built-in."""
    distribution: str
    version: str
    module: str
    state: PluginState
    """`failing`: it is in use, and something that it registered has failed."""
    cause: str | None = None
    """Why it is broken or blocked, or the failure; for the operator."""
    registers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hook name to the names of what was registered; empty if the plugin is broken or blocked."""
    deprecated: tuple[str, ...] = ()
    """What it uses that a later release no longer has, each with its replacement and that release."""

    def __str__(self) -> str:
        return f"plugin {self.name!r} of {self.distribution} {self.version}"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PluginSet:
    """Everything the installed plugins registered."""

    reports: tuple[PluginReport, ...] = ()
    families: Mapping[str, ModelFamily] = field(default_factory=dict)
    runners: tuple[RunnerSpec, ...] = ()
    architectures: Mapping[str, ArchitectureRecord] = field(default_factory=dict)
    model_folders: tuple[Path, ...] = ()
    schedulers: Mapping[str, SchedulerFactory] = field(default_factory=dict)
    memory_managers: Mapping[str, MemoryManagerFactory] = field(default_factory=dict)
    device_probes: tuple[DeviceProbe, ...] = ()
    weight_tiers: tuple[WeightTierFactory, ...] = ()
    weight_packages: tuple[WeightPackage, ...] = ()
    object_stores: Mapping[str, ObjectStoreFactory] = field(default_factory=dict)
    queue_transports: Mapping[str, QueueTransportFactory] = field(default_factory=dict)
    postprocessors: Mapping[str, Postprocessor] = field(default_factory=dict)
    output_dtypes: Mapping[str, OutputDtype] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    settings: tuple[PluginSetting, ...] = ()
    settings_models: tuple[type[Settings], ...] = ()
    faults: Faults = field(default_factory=Faults, compare=False, repr=False)
    """Failures since discovery."""
    calls: Calls = field(default_factory=Calls, compare=False, repr=False)
    """For calls that may hang."""

    @property
    def broken(self) -> tuple[PluginReport, ...]:
        """The reports of the broken plugins, each with its cause."""
        return tuple(report for report in self.reports if report.state == "broken")

    @property
    def other_weights(self) -> tuple[str, ...]:
        """Patterns of weight files other than safetensors that some family reads."""
        patterns = {pattern for family in self.families.values() for pattern in family.weights}
        return tuple(sorted(patterns.difference(SAFETENSORS)))

    def option_names(self) -> frozenset[str]:
        """Return the names of all families' options."""
        return frozenset(option.name for family in self.families.values() for option in family.options)

    def informed(self, card: ModelCard) -> ModelCard:
        """Give a card, which a family is about to read, the registered architectures."""
        return replace(card, records=self.architectures)

    def reports_now(self) -> tuple[PluginReport, ...]:
        """The reports, including failures since discovery."""
        return tuple(_failing(report, self.faults.of(str(report))) for report in self.reports)

    def problems(self) -> str:
        """List the broken and the failing plugins with their causes, fit for a client.

        The registrations of a broken plugin are unknown.
        """
        broken = (f"{each.name} ({each.distribution} {each.version}): {each.cause}" for each in self.broken)
        known = ((who, self.faults.of(who)) for who in (*map(str, self.reports), UNKNOWN))
        failing = (
            f"{who}: {'; '.join(dict.fromkeys(each.problem for each in faults))}" for who, faults in known if faults
        )
        return "; ".join((*broken, *failing))

    def faulty(self, hook: str, name: str, problem: str, error: BaseException | None = None) -> str:
        """Record that something a plugin registered failed; return its name and the plugin's for messages.

        Args:
            hook: The hook that registered it.
            name: Its name within that hook.
            problem: Its fault, as in "raised KeyError"; fit for a client.
            error: The exception; its text is for the log and the plugin's report only.
        """
        owner = self._owner(hook, name)
        what = f"the {REGISTRATIONS[hook].noun} {name!r}"
        self.faults.add(UNKNOWN if owner is None else str(owner), f"{what} {problem}", error)
        return self.called(hook, name)

    def called(self, hook: str, name: str) -> str:
        """Return the name of something that a plugin registered, and the plugin's, for messages."""
        owner = self._owner(hook, name)
        return f"the {REGISTRATIONS[hook].noun} {name!r}" + (f" of the {owner}" if owner is not None else "")

    def _owner(self, hook: str, name: str) -> PluginReport | None:
        return next((report for report in self.reports if name in report.registers.get(hook, ())), None)

    def scheduler(self, name: str) -> SchedulerFactory:
        """Return the scheduler that `SIE_SCHEDULER` names.

        Raises:
            PluginError: No plugin registered it; names the registered ones, and the broken plugins that may have had
            it.
        """
        return self._chosen(self.schedulers, "SIE_SCHEDULER", name, "scheduler")

    def memory_manager(self, name: str) -> MemoryManagerFactory:
        """Return the memory manager that `SIE_MEMORY_MANAGER` names.

        Raises:
            PluginError: No plugin registered it; names the registered ones, and the broken plugins that may have had
            it.
        """
        return self._chosen(self.memory_managers, "SIE_MEMORY_MANAGER", name, "memory manager")

    def _chosen(self, registered: Mapping[str, Made], variable: str, name: str, noun: str) -> Made:
        if name in registered:
            return registered[name]
        message = f"{variable}={name!r} names no registered {noun}; there are: {_listed(registered)}."
        if self.broken:
            message += (
                f" Broken plugins, which may have had it: {_listed(r.name for r in self.broken)}; see `sie plugins`."
            )
        raise PluginError(message)


def _failing(report: PluginReport, faults: Iterable[Fault]) -> PluginReport:
    causes = "; ".join(map(str, faults))
    return replace(report, state="failing", cause=causes) if causes else report


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
