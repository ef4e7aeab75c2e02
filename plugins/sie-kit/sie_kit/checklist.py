"""Lists everything a distribution registers and the checks each part of it must pass.

A part is checked by its contract alone, so the author writes one line for any number of parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from sie_core.cache import build_chain, find_weights
from sie_core.catalog import Catalog, build_catalog, choose_family, read_card
from sie_core.commands import GROUP
from sie_core.contracts import Item, PluginError, QueueError, QueueTransport, ResolvedModel, TierContext
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginReport, PluginSet, discover
from sie_core.settings import Settings, load_settings
from sie_kit.checks.adapter import ADAPTER_CHECKS
from sie_kit.checks.conversions import DTYPE_CHECKS, POSTPROCESSOR_CHECKS
from sie_kit.checks.devices import PROBE_CHECKS
from sie_kit.checks.families import COMMAND_CHECKS, DISTRIBUTION_CHECKS, FAMILY_CHECKS, PACKAGE_CHECKS, Sources
from sie_kit.checks.memory import MEMORY_CHECKS
from sie_kit.checks.models import (
    NAMED_CHECKS,
    STATED_CHECKS,
    the_reference_answers_each_item,
    the_runner_serves_and_computes_the_same,
)
from sie_kit.checks.queue import QUEUE_CHECKS
from sie_kit.checks.scheduler import SCHEDULER_CHECKS
from sie_kit.checks.stores import STORE_CHECKS, Place
from sie_kit.checks.tiers import TIER_CHECKS, Tier
from sie_kit.loading import LoadedModel, find_device, fitting, load_resolved, samples
from sie_kit.outcomes import Skipped, reason

KINDS: Mapping[str, Sequence[Callable[..., None]]] = {
    "distribution": DISTRIBUTION_CHECKS,
    "family": FAMILY_CHECKS,
    "model": ADAPTER_CHECKS,
    "runner": (*STATED_CHECKS, the_runner_serves_and_computes_the_same),
    "architecture": NAMED_CHECKS,
    "reference": (*STATED_CHECKS, the_reference_answers_each_item),
    "scheduler": SCHEDULER_CHECKS,
    "memory manager": MEMORY_CHECKS,
    "device probe": PROBE_CHECKS,
    "weight tier": TIER_CHECKS,
    "weight package": PACKAGE_CHECKS,
    "object store": STORE_CHECKS,
    "queue transport": QUEUE_CHECKS,
    "postprocessor": POSTPROCESSOR_CHECKS,
    "output dtype": DTYPE_CHECKS,
    "command": COMMAND_CHECKS,
}
"""Every check by the kind of part it is for."""
ON_MODELS = (the_runner_serves_and_computes_the_same, the_reference_answers_each_item)
NO_MODEL = "a model is checked"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one part; `str()` of it names a test."""

    part: str
    """Its kind and its name: `family letters`, `model acme/letters`."""
    name: str
    run: Callable[[], None]
    """Raises AssertionError if the part fails it, and `Skipped` if it does not apply."""
    kind: str = field(default="distribution", kw_only=True)

    def __str__(self) -> str:
        return f"{self.part}: {self.name}"

    @property
    def id(self) -> str:
        """Names it in the docs: `model/facts-are-truthful`."""
        return _id(self.kind, self.name.partition(",")[0])


def checks_of(
    distribution: str,
    *,
    models: Sequence[str] | None = None,
    models_dir: Path | None = None,
    items: Sequence[Item] | None = None,
    device: str = "cpu",
    queue_url: str | None = None,
    store_url: str | None = None,
    repository: str | None = None,
) -> list[Check]:
    """List the checks of all that an installed distribution registers.

    Args:
        distribution: Its name, as pip has it.
        models: Ids of the models to check its families, runners and references with. None takes models of its own
            configs and of `models_dir` whose weights, if any, are on this machine.
        models_dir: A folder of model configs, or of folders of weights, in addition to those of the plugins.
        items: Inputs of the models; None takes texts of several lengths and scripts, and images for vision models.
        device: The kind of device for loading models.
        queue_url: Broker for checking its queue transports; None is enough for in-process brokers, reached by
            `SCHEME://conformance`.
        store_url: Object store to write to, in a folder of the checks' own; None skips the checks that need one.
        repository: A Hub repository whose weights its tiers have; None skips the check that needs one.

    Raises:
        PluginError: No such distribution brings a plugin or a command, or its plugin is broken; names the cause.
    """
    models_dir = None if models_dir is None else models_dir.resolve()  # configs name their files whole
    settings = load_settings() if models_dir is None else load_settings(models_dir=models_dir)
    plugins = discover(settings, BUILTINS)
    commands = _commands_of(distribution)
    reports = _reports_of(distribution, plugins, optional=bool(commands))
    catalog = build_catalog(settings, plugins)
    kit = _Kit(plugins, settings, catalog, device, items, models_dir, queue_url, store_url, repository)
    sources = Sources(distribution, [each.module for each in reports], [each.module for each in commands])
    checks = list(_all("distribution", distribution, DISTRIBUTION_CHECKS, sources))
    checks += [check for report in reports for check in kit.parts(report)]
    for command in (command for each in commands for command in each.load()):
        checks += _all("command", command.name, COMMAND_CHECKS, command)
    chosen = list(kit.models(reports) if models is None else models)
    for model in chosen:
        checks += kit.of_model(model, chosen)
    for report in reports:
        checks += kit.on_models(report, chosen)
    if models is None and not chosen and any(report.registers.get("sie_model_families") for report in reports):
        checks.append(Check(f"distribution {distribution}", NO_MODEL, partial(_no_model, distribution)))
    return checks


def conformance(distribution: str, **arguments: Any) -> Callable[..., None]:
    """Make a pytest test function of all checks of a distribution: `test_conformance = conformance("my-plugin")`.

    Takes the arguments of `checks_of`; every check is a separate test.
    """
    import pytest

    @pytest.mark.parametrize("check", checks_of(distribution, **arguments), ids=str)
    def test_conformance(check: Check) -> None:
        check.run()

    return test_conformance


def failures(checks: Iterable[Check]) -> dict[str, str]:
    """Run checks; return why each that fails does, by its name. Those that do not apply are passed over."""
    found = {}
    for check in checks:
        try:
            check.run()
        except Skipped:
            continue
        except AssertionError as error:
            found[str(check)] = reason(error)
    return found


@dataclass(frozen=True, slots=True)
class _Kit:
    """Makes the checks of the parts of one distribution."""

    plugins: PluginSet
    settings: Settings
    catalog: Catalog
    device: str
    items: Sequence[Item] | None
    models_dir: Path | None = None
    queue_url: str | None = None
    store_url: str | None = None
    repository: str | None = None

    def parts(self, report: PluginReport) -> Iterator[Check]:
        """Check each thing one plugin registers, but what needs a model."""
        plugins, transports = self.plugins, self._transports()
        for hook, kind, found in (
            ("sie_model_families", "family", plugins.families),
            ("sie_architectures", "architecture", plugins.architectures),
            ("sie_schedulers", "scheduler", plugins.schedulers),
            ("sie_memory_managers", "memory manager", plugins.memory_managers),
            ("sie_postprocessors", "postprocessor", plugins.postprocessors),
            ("sie_output_dtypes", "output dtype", plugins.output_dtypes),
            ("sie_runners", "runner", {each.name: each for each in plugins.runners}),
            ("sie_references", "reference", {each.name: each for each in plugins.references}),
            ("sie_device_probes", "device probe", {each.kind: each for each in plugins.device_probes}),
            ("sie_weight_packages", "weight package", {each.repo_id: each for each in plugins.weight_packages}),
            ("sie_weight_tiers", "weight tier", self._tiers()),
            ("sie_object_stores", "object store", self._stores()),
            ("sie_queue_transports", "queue transport", transports),
        ):
            checks = [check for check in KINDS[kind] if check not in ON_MODELS]
            for name in report.registers.get(hook, ()):
                if name not in found:
                    continue
                made = _all(kind, name, checks, found[name])
                if kind == "queue transport" and self.queue_url is None:
                    reach = cache(partial(_reach, transports[name]))
                    made = (replace(check, run=partial(_where_reached, reach, check.run)) for check in made)
                yield from made

    def _tiers(self) -> Mapping[str, Tier]:
        context = TierContext(self.settings, self.plugins.weight_packages, self.plugins.object_stores)
        return {each.name: Tier(each, context, self.repository) for each in self.plugins.weight_tiers}

    def _stores(self) -> Mapping[str, Place]:
        url = self.store_url
        return {
            scheme: Place(factory, url if url and url.startswith(f"{scheme}://") else None)
            for scheme, factory in self.plugins.object_stores.items()
        }

    def _transports(self) -> Mapping[str, Callable[[], Any]]:
        """Make a connection of each transport, but those whose broker is elsewhere and not named."""
        made = {}
        for scheme, factory in self.plugins.queue_transports.items():
            url = self.queue_url or f"{scheme}://conformance"
            if url.startswith(f"{scheme}://"):
                made[scheme] = partial(factory.create, url, {})
        return made

    def of_model(self, model: str, chosen: Sequence[str]) -> Iterator[Check]:
        """Check a model's adapter. It is loaded once, by the first check that runs, and unloaded by the last."""
        load = cache(partial(self._load, model, chosen))
        for check in ADAPTER_CHECKS:
            yield Check(f"model {model}", _name(check), partial(_on_loaded, check, load, self.items), kind="model")

    def on_models(self, report: PluginReport, chosen: Sequence[str]) -> Iterator[Check]:
        """Check the runners and references of one plugin with models."""
        for model in chosen or (None,):
            for name in report.registers.get("sie_runners", ()):
                told = _with(the_runner_serves_and_computes_the_same, model)
                yield Check(f"runner {name}", told, partial(self._run_by, name, model), kind="runner")
            for name in report.registers.get("sie_references", ()):
                told = _with(the_reference_answers_each_item, model)
                yield Check(f"reference {name}", told, partial(self._refer, name, model), kind="reference")

    def _load(self, model: str, chosen: Sequence[str]) -> LoadedModel:
        from sie_kit.server import serving  # the engine and its routes, which most lists of checks do without

        loaded = self._loaded(model)
        near = (
            each for each in chosen if each != model and self._family(self.catalog.resolve(each)) == loaded.family.id
        )
        other = [partial(self._loaded, each) for each in islice(near, 1)]
        given: dict[str, Any] = {"models_dir": self.models_dir} if self.models_dir else {}
        serve = partial(serving, plugin_set=self.plugins, preload_models=(model,), device=self.device, **given)
        return replace(loaded, others=(*loaded.others, *other), serve=serve)

    def _run_by(self, name: str, model: str | None) -> None:
        if model is None:
            raise Skipped('no model is named to try it with: conformance(…, models=["org/name"])')
        (runner,) = (each for each in self.plugins.runners if each.name == name)
        others = tuple(each for each in self.plugins.runners if each is not runner)
        try:
            mine = self._loaded(model, settings=self.settings.model_copy(update={"runner": name}))
        except Exception as error:
            raise AssertionError(f"{model} cannot be loaded by it: {type(error).__name__}: {error}") from error
        plain = self._loaded(model, plugins=replace(self.plugins, runners=others))
        items = fitting(samples(), mine.adapter.facts) if self.items is None else self.items
        the_runner_serves_and_computes_the_same(name, mine, plain, items)

    def _refer(self, name: str, model: str | None) -> None:
        if model is None:
            raise Skipped('no model is named to try it with: conformance(…, models=["org/name"])')
        (reference,) = (each for each in self.plugins.references if each.name == name)
        loaded = self._loaded(model)
        if loaded.family.id not in reference.families:
            raise Skipped(f"{model} is of the family {loaded.family.id}")
        items = fitting(samples(), loaded.adapter.facts) if self.items is None else self.items
        the_reference_answers_each_item(reference, loaded, items)

    def _loaded(self, model: str, *, plugins: PluginSet | None = None, settings: Settings | None = None) -> LoadedModel:
        resolved = self.catalog.resolve(model)
        return load_resolved(resolved, plugins or self.plugins, settings or self.settings, self.device)

    def models(self, reports: Iterable[PluginReport]) -> Iterator[str]:
        """List the models of a distribution's folders, and of `models_dir`, that can be loaded without a download."""
        reports = list(reports)
        folders = tuple(folder for report in reports for folder in report.registers.get("sie_model_folders", ()))
        folders += () if self.models_dir is None else (str(self.models_dir),)
        families = {name for report in reports for name in report.registers.get("sie_model_families", ())}
        for resolved in self.catalog.models():
            config = resolved.config
            # A folder of weights without a config has no file to be its source.
            places = (config.source, config.weights_path or "")
            if any(each.startswith(folders) for each in places) and self._family(resolved) in families:
                yield resolved.id

    def _family(self, resolved: ResolvedModel) -> str | None:
        """Name the family that serves a model here; None if its weights are elsewhere."""
        found = find_weights(resolved.config, build_chain(self.settings, self.plugins))
        if found is None and not resolved.config.weightless:
            return None
        card = None if found is None else read_card(found[1])
        return choose_family(self.plugins, resolved, card, find_device(self.device, self.plugins)).family.id


def _reports_of(distribution: str, plugins: PluginSet, *, optional: bool) -> list[PluginReport]:
    wanted = canonicalize_name(distribution)
    reports = [report for report in plugins.reports if canonicalize_name(report.distribution) == wanted]
    if not reports and not optional:
        there = ", ".join(sorted({report.distribution for report in plugins.reports}))
        raise PluginError(f"no plugin of a distribution {distribution!r} is installed; there are those of {there}")
    for report in reports:
        if report.state != "active":
            raise PluginError(f"plugin {report.name!r} of {report.distribution} is {report.state}: {report.cause}")
    return reports


def _commands_of(distribution: str) -> list[EntryPoint]:
    wanted = canonicalize_name(distribution)
    found = entry_points(group=GROUP)
    return [each for each in found if each.dist is not None and canonicalize_name(each.dist.name) == wanted]


def _all(kind: str, part: str, checks: Iterable[Callable[[Any], None]], subject: object) -> Iterator[Check]:
    for check in checks:
        yield Check(f"{kind} {part}", _name(check), partial(check, subject), kind=kind)


def check_id(kind: str, check: Callable[..., None]) -> str:
    """Name a check of a kind of part as the docs and `sie plugins check` do."""
    return _id(kind, _name(check))


def _id(kind: str, name: str) -> str:
    return f"{kind}/{name}".replace(" ", "-")


def _name(check: Callable[..., None]) -> str:
    return check.__name__.replace("_", " ")


def _with(check: Callable[..., None], model: str | None) -> str:
    return _name(check) if model is None else f"{_name(check)}, {model}"


def _on_loaded(check: Callable[..., None], load: Callable[[], LoadedModel], items: Sequence[Item] | None) -> None:
    model = load()
    check(model, fitting(samples(), model.adapter.facts) if items is None else items)


def _reach(connect: Callable[[], QueueTransport]) -> str:
    """Open a connection; return why there is none."""

    async def opened() -> None:
        transport = connect()
        await transport.open()
        await transport.close()

    try:
        asyncio.run(opened())
    except QueueError as error:
        return str(error)
    return ""


def _where_reached(reach: Callable[[], str], run: Callable[[], None]) -> None:
    if why := reach():
        raise Skipped(f'{why} Name a broker: conformance(…, queue_url="…"), or --queue-url')
    run()


def _no_model(distribution: str) -> None:
    raise Skipped(
        f"{distribution} registers model families, and none of their models was checked: none that it ships is without "
        "weights or has its weights on this machine. Name some that are here, "
        f'conformance("{distribution}", models=["org/name"]), or a folder with configs or weights, '
        f'conformance("{distribution}", models_dir=Path("models")); `sie plugins check` has --model and --models-dir.'
    )
