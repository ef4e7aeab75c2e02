"""The rules for each hook's result: its type, its names, and whether a name must be unique.

The table has one row a hook. Only the form is checked: an adapter is imported at its first load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sie_core.contracts import (
    COMPARED,
    ArchitectureRecord,
    DeviceProbe,
    ModelFamily,
    ObjectStoreFactory,
    Option,
    OutputDtype,
    OutputType,
    PluginSetting,
    Postprocessor,
    QueueTransportFactory,
    Reference,
    RunnerSpec,
    WeightPackage,
    WeightTierFactory,
)
from sie_core.contracts.model.weights import may_run_code
from sie_core.plugins.interfaces.signatures import mismatches, unfit
from sie_core.settings import PREFIX, Settings, core_variables

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*")
_VARIABLE = re.compile(PREFIX + "[A-Z0-9_]+")
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*")

Check = Callable[[Any], Iterable[str]]


class Malformed(Exception):
    """A hook's result breaks its spec; the message says how, with the remedy."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The rules for checking and storing the results of one hook."""

    field: str
    """The field of `PluginSet` that holds them."""
    noun: str
    """Singular noun for messages."""
    type: type | None
    """Type of each entry; None if `problems` checks it."""
    problems: Check
    interface: str
    """Name of what plugins write for the hook, and the engine uses."""
    versions: tuple[int, ...] = (1,)
    """Versions of the interface that this core serves: the newest, and the one before it if there is one."""
    name: str | None = "name"
    """The attribute that names an entry; None if it has none."""
    exclusive: bool = True
    """Whether two plugins may not register the same name."""
    mapping: bool = False
    """Whether the hook returns a mapping by name."""
    by_name: bool = False
    """Whether `PluginSet` holds them by name."""

    def name_of(self, item: Any) -> str:
        """Return the name of an entry: of a mapping its key, of a class its path."""
        if self.mapping:
            return str(item[0])
        if self.name is not None:
            return str(getattr(item, self.name))
        return f"{item.__module__}.{item.__qualname__}" if isinstance(item, type) else str(item)

    @property
    def served(self) -> tuple[str, ...]:
        """The versions that are served, like `sie.family/1`."""
        return tuple(f"{self.interface}/{version}" for version in self.versions)

    @property
    def current(self) -> str:
        """The newest version, for which new plugins are written."""
        return f"{self.interface}/{max(self.versions)}"


def _target(value: Any, what: str, form: str = "module:Class") -> Iterable[str]:
    if not (isinstance(value, str) and _TARGET.fullmatch(value)):
        yield f"{what} is {value!r}, not a string like {form!r}"


def _named(value: Any, what: str) -> Iterable[str]:
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        yield f"{what} is {value!r}, not a name of letters, digits, '.', '_' and '-'"


def _callable(value: Any, what: str, *arguments: str) -> Iterable[str]:
    if not callable(value):
        yield f"{what} is {value!r}, which cannot be called"
    elif fault := unfit(value, arguments):
        yield f"{what} {fault}"


def _family(family: ModelFamily) -> Iterable[str]:
    yield from _named(family.id, "id")
    if "." in str(family.id):
        yield f"id is {family.id!r}; a '.' would make it a class path in a model config's adapter_path"
    yield from _target(family.load, "load", "module:function")
    yield from _callable(family.claims, "claims", "card")
    yield from _patterns(family.weights)
    if isinstance(family.devices, str):
        yield f"devices is the string {family.devices!r}; make it frozenset({{{family.devices!r}}})"
    yield from _options(family.options, "options")


def _patterns(weights: tuple[str, ...]) -> Iterable[str]:
    if not (isinstance(weights, tuple) and weights and all(isinstance(each, str) and each for each in weights)):
        yield f"weights is {weights!r}, not a tuple of patterns like ('*.onnx',)"
        return
    for pattern in filter(may_run_code, weights):
        yield f"weights holds {pattern!r}: pickles can run code when they are read, and are fetched for nobody"


def _options(options: Iterable[object], what: str) -> Iterable[str]:
    seen: set[str] = set()
    for option in options:
        if not isinstance(option, Option):
            yield f"{what} holds {option!r}, which is no sie_core.contracts.Option"
            continue
        yield from _named(option.name, f"the name of an option among {what}")
        if option.name in seen:
            yield f"{what} declares {option.name!r} twice"
        seen.add(option.name)


def _architecture(record: ArchitectureRecord) -> Iterable[str]:
    yield from _named(record.name, "name")


def _runner(runner: RunnerSpec) -> Iterable[str]:
    yield from _named(runner.name, "name")
    yield from _target(runner.target, "target")


def _folder(folder: Path) -> Iterable[str]:
    if not folder.is_dir():
        yield f"{folder} is no folder; does the wheel include it?"


def _probe(probe: Any) -> Iterable[str]:
    yield from _named(getattr(probe, "kind", None), "kind")
    if not isinstance(getattr(probe, "priority", None), int):
        yield "priority is no int"
    yield from mismatches(probe, DeviceProbe)


def _tier(tier: WeightTierFactory) -> Iterable[str]:
    yield from _named(tier.name, "name")
    if not isinstance(tier.order, int):
        yield f"order is {tier.order!r}, no int"
    yield from _callable(tier.create, "create", "context")


def _package(package: WeightPackage) -> Iterable[str]:
    for attribute in ("repo_id", "distribution", "module", "folder"):
        if not isinstance(getattr(package, attribute), str):
            yield f"{attribute} is {getattr(package, attribute)!r}, no string"


def _by_scheme(factory: ObjectStoreFactory | QueueTransportFactory) -> Iterable[str]:
    if not _SCHEME.fullmatch(str(factory.scheme)):
        yield f"scheme is {factory.scheme!r}, not a URL scheme in lower case such as 's3'"
    arguments = ("url", "options") if isinstance(factory, QueueTransportFactory) else ("url",)
    yield from _callable(factory.create, "create", *arguments)


def _dtype(dtype: OutputDtype) -> Iterable[str]:
    yield from _named(dtype.name, "name")
    yield from _callable(dtype.cast, "cast", "vectors")


def _postprocessor(each: Postprocessor) -> Iterable[str]:
    yield from _named(each.name, "name")
    yield from _callable(each.create, "create", "parameters", "dims")
    for what in ("source", "target"):
        if getattr(each, what) not in get_args(OutputType):
            yield f"{what} is {getattr(each, what)!r}, not one of {', '.join(get_args(OutputType))}"
    if each.source == each.target:
        yield f"source and target are both {each.source!r}"
    yield from _options(each.parameters, "parameters")


def _reference(reference: Reference) -> Iterable[str]:
    yield from _named(reference.name, "name")
    yield from _target(reference.target, "target")
    for what in ("families", "gives"):
        if isinstance(getattr(reference, what), str):
            yield f"{what} is the string {getattr(reference, what)!r}; make it a frozenset"
    if unknown := sorted(set(reference.gives) - set(COMPARED)):
        yield f"gives names {', '.join(map(repr, unknown))}, and there are {', '.join(COMPARED)}"


def _setting(setting: PluginSetting) -> Iterable[str]:
    if not _VARIABLE.fullmatch(str(setting.variable)):
        yield f"variable is {setting.variable!r}, not a name in capitals that begins with {PREFIX}"
    elif setting.variable in core_variables():
        yield f"variable is {setting.variable!r}, a setting of the core"
    if isinstance(setting.allowed, str):
        yield f"allowed is the string {setting.allowed!r}; make it a tuple"
    elif setting.allowed and setting.default not in setting.allowed:
        yield f"default is {setting.default!r}, which allowed does not hold"


def _model(model: type) -> Iterable[str]:
    if not issubclass(model, Settings):
        yield f"{model.__module__}.{model.__qualname__} is no subclass of sie_core.settings.Settings"


def _factory(item: tuple[Any, Any]) -> Iterable[str]:
    yield from _named(item[0], "name")
    yield from _callable(item[1], "factory", "limits")


REGISTRATIONS: Mapping[str, Registration] = {
    "sie_model_families": Registration(
        "families", "model family", ModelFamily, _family, "sie.family", by_name=True, name="id"
    ),
    "sie_runners": Registration("runners", "runner", RunnerSpec, _runner, "sie.runner", (2, 3), exclusive=False),
    "sie_architectures": Registration(
        "architectures", "architecture", ArchitectureRecord, _architecture, "sie.architecture", by_name=True
    ),
    "sie_model_folders": Registration(
        "model_folders", "folder of model configs", Path, _folder, "sie.models", exclusive=False, name=None
    ),
    "sie_schedulers": Registration(
        "schedulers", "scheduler", None, _factory, "sie.scheduler", mapping=True, by_name=True
    ),
    "sie_memory_managers": Registration(
        "memory_managers", "memory manager", None, _factory, "sie.memory", mapping=True, by_name=True
    ),
    "sie_device_probes": Registration("device_probes", "device probe", None, _probe, "sie.probe", name="kind"),
    "sie_weight_tiers": Registration("weight_tiers", "weight tier", WeightTierFactory, _tier, "sie.tier"),
    "sie_weight_packages": Registration(
        "weight_packages", "weight package", WeightPackage, _package, "sie.package", exclusive=False, name="repo_id"
    ),
    "sie_object_stores": Registration(
        "object_stores", "object store", ObjectStoreFactory, _by_scheme, "sie.store", by_name=True, name="scheme"
    ),
    "sie_queue_transports": Registration(
        "queue_transports",
        "queue transport",
        QueueTransportFactory,
        _by_scheme,
        "sie.queue",
        by_name=True,
        name="scheme",
    ),
    "sie_postprocessors": Registration(
        "postprocessors", "postprocessor", Postprocessor, _postprocessor, "sie.postprocessor", by_name=True
    ),
    "sie_output_dtypes": Registration("output_dtypes", "output dtype", OutputDtype, _dtype, "sie.dtype", by_name=True),
    "sie_references": Registration("references", "reference", Reference, _reference, "sie.reference"),
    "sie_settings": Registration("settings", "setting", PluginSetting, _setting, "sie.setting", name="variable"),
    "sie_settings_models": Registration(
        "settings_models", "settings model", type, _model, "sie.settings-model", name=None
    ),
}
"""Every hook of `sie_core.hookspecs`."""


def read(hook: str, result: Any) -> Sequence[tuple[str, Any]]:
    """Check the result of `hook`; return its parts by name.

    Raises:
        Malformed: It breaks the hook's spec.
    """
    row = REGISTRATIONS[hook]
    shape: Any = Mapping if row.mapping else Sequence
    if not isinstance(result, shape) or isinstance(result, str):
        raise Malformed(
            f"{hook} returned {_short(result)}, not a {'mapping' if row.mapping else 'list'} of {row.noun} objects; "
            f"return an empty one where there is nothing to register"
        )
    pairs: list[tuple[str, Any]] = []
    for position, item in enumerate(result.items() if row.mapping else result):
        if row.type is not None and not isinstance(item, row.type):
            raise Malformed(f"{hook} returned {_short(item)} at position {position}, not a {row.type.__name__}")
        problems = "; ".join(row.problems(item))
        if problems:
            raise Malformed(f"{hook} returned a malformed {row.noun} at position {position}: {problems}")
        name = row.name_of(item)
        if row.exclusive and name in dict(pairs):
            raise Malformed(f"{hook} returned the {row.noun} {name!r} twice; leave one out")
        pairs.append((name, item[1] if row.mapping else item))
    return pairs


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:80]}… ({type(value).__name__})" if len(text) > 80 else f"{text} ({type(value).__name__})"
