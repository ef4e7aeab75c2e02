"""Lists everything a distribution registers and the checks each part of it must pass.

A part is checked by its contract alone, so the author writes one line for any number of parts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from packaging.utils import canonicalize_name

from sie_core.cache import build_chain, find_weights
from sie_core.catalog import build_catalog, choose_family, read_card
from sie_core.contracts import Item, ModelFamily, PluginError, ResolvedModel
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginReport, PluginSet, discover
from sie_core.settings import Settings, load_settings
from sie_core.testing.adapter_checks import ADAPTER_CHECKS
from sie_core.testing.loading import LoadedModel, find_device, fitting, load_model, samples
from sie_core.testing.memory_checks import MEMORY_CHECKS
from sie_core.testing.part_checks import DTYPE_CHECKS, POSTPROCESSOR_CHECKS, PROBE_CHECKS
from sie_core.testing.queue_checks import QUEUE_CHECKS
from sie_core.testing.scheduler_checks import SCHEDULER_CHECKS

HEAVY = ("torch", "transformers", "sentence_transformers", "tensorflow", "jax", "onnxruntime")
"""Libraries that discovery must not import: they take seconds, and `sie plugins` must take none."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one part; `str()` of it names a test."""

    part: str
    name: str
    run: Callable[[], None]
    """Raises AssertionError if the part fails it."""

    def __str__(self) -> str:
        return f"{self.part}: {self.name}"


def checks_of(
    distribution: str,
    *,
    models: Sequence[str] | None = None,
    models_dir: Path | None = None,
    items: Sequence[Item] | None = None,
    device: str = "cpu",
    queue_url: str | None = None,
) -> list[Check]:
    """List the checks of all that an installed distribution registers.

    Args:
        distribution: Its name, as pip has it.
        models: Ids of the models to check its families with. None takes models of its own configs and of `models_dir`
            whose weights, if any, are on this machine.
        models_dir: A folder of model configs, or of folders of weights, in addition to those of the plugins.
        items: Inputs of the models; None takes texts of several lengths and scripts, and images for vision models.
        device: The kind of device for loading models.
        queue_url: Broker for checking its queue transports; None is enough for in-process brokers, reached by
            `SCHEME://conformance`.

    Raises:
        PluginError: No such distribution registers a plugin, or its plugin is broken; names the cause.
    """
    settings = load_settings() if models_dir is None else load_settings(models_dir=models_dir)
    plugins = discover(settings, BUILTINS)
    reports = _reports_of(distribution, plugins)
    kit = _Kit(plugins, settings, device, items, models_dir, queue_url)
    checks = [
        Check(f"distribution {distribution}", _name(discovery_stays_light), partial(discovery_stays_light, reports))
    ]
    checks += [check for report in reports for check in kit.parts(report)]
    chosen = list(kit.models(reports) if models is None else models)
    for model in chosen:
        checks += kit.of_model(model)
    if models is None and not chosen and any(report.registers.get("sie_model_families") for report in reports):
        checks.append(Check(f"distribution {distribution}", "a model is checked", partial(_no_model, distribution)))
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


@dataclass(frozen=True, slots=True)
class _Kit:
    """Makes the checks of the parts of one distribution."""

    plugins: PluginSet
    settings: Settings
    device: str
    items: Sequence[Item] | None
    models_dir: Path | None = None
    queue_url: str | None = None

    def parts(self, report: PluginReport) -> Iterator[Check]:
        """Check each thing one plugin registers, but its models."""
        for name in report.registers.get("sie_model_families", ()):
            family = self.plugins.families[name]
            yield Check(f"family {name}", "its `load` can be imported", partial(_load_is_there, family))
        for name in report.registers.get("sie_schedulers", ()):
            yield from _all(f"scheduler {name}", SCHEDULER_CHECKS, self.plugins.schedulers[name])
        for name in report.registers.get("sie_memory_managers", ()):
            yield from _all(f"memory manager {name}", MEMORY_CHECKS, self.plugins.memory_managers[name])
        for name in report.registers.get("sie_postprocessors", ()):
            yield from _all(f"postprocessor {name}", POSTPROCESSOR_CHECKS, self.plugins.postprocessors[name])
        for name in report.registers.get("sie_output_dtypes", ()):
            yield from _all(f"output dtype {name}", DTYPE_CHECKS, self.plugins.output_dtypes[name])
        for scheme in report.registers.get("sie_queue_transports", ()):
            url = self.queue_url or f"{scheme}://conformance"
            if url.startswith(f"{scheme}://"):
                connect = partial(self.plugins.queue_transports[scheme].create, url, {})
                yield from _all(f"queue transport {scheme}", QUEUE_CHECKS, connect)
        kinds = report.registers.get("sie_device_probes", ())
        for probe in self.plugins.device_probes:
            if probe.kind in kinds:
                yield from _all(f"device probe {probe.kind}", PROBE_CHECKS, probe)

    def of_model(self, model: str) -> Iterator[Check]:
        """Check a model's adapter. It is loaded once, by the first check that runs, and unloaded by the last."""
        load = cache(partial(load_model, model, self.plugins, self.settings, self.device))
        for check in ADAPTER_CHECKS:
            run = partial(_on_loaded, check, load, self.items)
            yield Check(f"model {model}", _name(check), run)
        again = partial(_unloads, load, partial(load_model, model, self.plugins, self.settings, self.device))
        yield Check(f"model {model}", "it unloads and loads again", again)

    def models(self, reports: Iterable[PluginReport]) -> Iterator[str]:
        """List the models of a distribution's folders, and of `models_dir`, that can be loaded without a download."""
        reports = list(reports)
        folders = tuple(folder for report in reports for folder in report.registers.get("sie_model_folders", ()))
        folders += () if self.models_dir is None else (str(self.models_dir),)
        families = {name for report in reports for name in report.registers.get("sie_model_families", ())}
        for resolved in build_catalog(self.settings, self.plugins).models():
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


def _reports_of(distribution: str, plugins: PluginSet) -> list[PluginReport]:
    wanted = canonicalize_name(distribution)
    reports = [report for report in plugins.reports if canonicalize_name(report.distribution) == wanted]
    if not reports:
        there = ", ".join(sorted({report.distribution for report in plugins.reports}))
        raise PluginError(f"no plugin of a distribution {distribution!r} is installed; there are those of {there}")
    for report in reports:
        if report.state != "active":
            raise PluginError(f"plugin {report.name!r} of {report.distribution} is {report.state}: {report.cause}")
    return reports


def _all(part: str, checks: Iterable[Callable[[Any], None]], subject: object) -> Iterator[Check]:
    for check in checks:
        yield Check(part, _name(check), partial(check, subject))


def _name(check: Callable[..., None]) -> str:
    return check.__name__.replace("_", " ")


def _on_loaded(check: Callable[..., None], load: Callable[[], LoadedModel], items: Sequence[Item] | None) -> None:
    model = load()
    check(model, fitting(samples(), model.adapter.facts) if items is None else items)


def _unloads(load: Callable[[], LoadedModel], load_again: Callable[[], LoadedModel]) -> None:
    first = load()
    facts = first.adapter.facts
    first.adapter.unload()
    again = load_again()
    assert again.adapter.facts.operations == facts.operations, "the second load has other facts than the first"
    assert again.adapter.facts.dims == facts.dims, "the second load has other facts than the first"
    again.adapter.unload()


def _load_is_there(family: ModelFamily) -> None:
    load = resolve_name(family.load)
    assert callable(load), f"{family.load} is {load!r}, which cannot be called"


def _no_model(distribution: str) -> None:
    raise AssertionError(
        f"{distribution} registers model families, and none of their models was checked: none that it ships is without "
        "weights or has its weights on this machine. Name some that are here, "
        f'conformance("{distribution}", models=["org/name"]), or a folder with configs or weights, '
        f'conformance("{distribution}", models_dir=Path("models")).'
    )


def discovery_stays_light(reports: Sequence[PluginReport]) -> None:
    """Importing the plugins and calling their hooks, in a separate process, loads no model library."""
    modules = [report.module for report in reports]
    code = (
        "import sys; from pkgutil import resolve_name; from sie_core.plugins.asking import ask; "
        f"[ask(lambda: resolve_name(module), module, module) for module in {modules!r}]; "
        f"print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"discovery fails in a process of its own: {done.stderr}"
    loaded = done.stdout.strip()
    remedy = "name functions and classes by 'module:name' instead"
    assert not loaded, f"the plugin imports {loaded} before a model is loaded; {remedy}"
