"""The catalog: an immutable snapshot of every model that can be served.

A changed config gives a new snapshot with a higher epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.wording import did_you_mean, short
from sie_core.contracts import InferenceError, InvalidInput, ModelConfig, ResolvedModel

DEFAULT_PROFILE = "default"
FOUND_WEIGHTS = "weights"
"""The `source` of a model that no config names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A config that could not be used, for the operator; the rest of the catalog is served."""

    source: str
    message: str
    model: str | None = None
    """The id that the config states, if it could be read."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every model by the id it is listed under: `id` for the default profile, `id:profile` for any other."""

    epoch: int
    entries: Mapping[str, ResolvedModel] = field(default_factory=dict)
    """Every model that is served, by the id it is listed under."""
    problems: tuple[Problem, ...] = ()
    absent: str = ""
    """A sentence about models that are missing because plugins are broken, for the error of an unknown model."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Known models that cannot be served here, by id, with the reason."""
    here: frozenset[str] = frozenset()
    """The ids of models whose weights are on this machine; the error of an unknown model suggests them first."""
    stamp: Hashable = None
    """The stamp of the models folder from which this snapshot was made."""
    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    """Every config by its id, including those that `SIE_MODEL_FILTER` excludes."""
    config_epoch: int | None = None
    """The config service's epoch of these configs; None without a config service.

    `epoch` counts the snapshots of this process.
    """

    def models(self) -> list[ResolvedModel]:
        """List every model, ordered by id."""
        return list(self.entries.values())

    @property
    def note(self) -> str | None:
        """Name the files with problems, for clients; None if there are none."""
        names = sorted({problem.source.rpartition("/")[2] for problem in self.problems})
        return f"model configs not served as they are written: {', '.join(names)}; the log says why" if names else None

    @property
    def remarks(self) -> str:
        """Sentences on models missing because of broken plugins and configs, for the error of an unknown model."""
        return self.absent + (f" {self.note[0].upper()}{self.note[1:]}." if self.note else "")

    def fault(self, model_id: str) -> str | None:
        """Describe the mistake in a model's config that keeps it from being served; None if there is none."""
        for problem in self.problems:
            stated = problem.model
            if stated and stated not in self.configs and (model_id == stated or model_id.startswith(f"{stated}:")):
                return f"{stated} is not served: {problem.source.rpartition('/')[2]}: {problem.message}"
        return None

    def like(self, model_id: str, among: Callable[[str], bool] = lambda _: True) -> str:
        """Ask whether one of the nearest ids is meant, of models with a mistake in their config too.

        Args:
            model_id: An id that no model has.
            among: Whether an id may be suggested.
        """
        stated = [problem.model for problem in self.problems if problem.model]
        return did_you_mean(model_id, filter(among, dict.fromkeys([*self.entries, *stated])), self.here)

    def resolve(self, model_id: str) -> ResolvedModel:
        """Find what `id` or `id:profile` names; `id:default` is the bare id.

        Raises:
            InvalidInput: `model_id` cannot be an id at all.
            InferenceError: `MODEL_NOT_FOUND`, naming the nearest ids.
        """
        found = self.entries.get(model_id) or self.entries.get(listed_id(model_id))
        if found is None:
            if not is_model_id(model_id):
                raise InvalidInput(f"The model id {short(model_id)} is not well formed: {ID_RULE}.", param="model")
            raise InferenceError("MODEL_NOT_FOUND", self.not_found(model_id), param="model")
        return found

    def plus(self, configs: Iterable[ModelConfig]) -> Catalog:
        """Return the next snapshot, with the models added whose ids are free; this one if there are none."""
        new = {config.id: config for config in configs if config.id not in self.configs}
        if not new:
            return self
        added = {resolved.id: resolved for config in new.values() for resolved in profiles_of(config)}
        entries = MappingProxyType(dict(sorted({**added, **self.entries}.items())))
        return replace(self, epoch=self.epoch + 1, entries=entries, configs=MappingProxyType({**self.configs, **new}))

    def not_found(self, model_id: str) -> str:
        """Write the message of an unknown model: the reason, the nearest ids, or where to look."""
        if model_id in self.unserved:
            return f"{model_id} is not served here: {self.unserved[model_id]}"
        if fault := self.fault(model_id):
            return fault
        hint = self.like(model_id) or " GET /v1/models lists those that are."
        return f"No model {model_id!r} is served here.{hint}{self.remarks}"


def listed_id(name: str) -> str:
    """Return the id that a model is listed under: `id:default` is the bare id."""
    return name.removesuffix(f":{DEFAULT_PROFILE}")


def make_catalog(
    epoch: int, configs: Iterable[ModelConfig], problems: Iterable[Problem] = (), absent: str = ""
) -> Catalog:
    """Make the snapshot of `configs`; an id listed twice is a problem, and the first keeps it."""
    entries: dict[str, ResolvedModel] = {}
    found = list(problems)
    unserved = {}
    kept: dict[str, ModelConfig] = {}
    for config in configs:
        if config.unserved is not None:
            unserved[config.id] = config.unserved
            continue
        kept.setdefault(config.id, config)
        for resolved in profiles_of(config):
            if resolved.id in entries:
                other = entries[resolved.id].config.source
                found.append(Problem(config.source, f"the id {resolved.id} is taken by {other}; that one is served"))
            else:
                entries[resolved.id] = resolved
    listed = MappingProxyType(dict(sorted(entries.items())))
    return Catalog(epoch, listed, tuple(found), absent, unserved, configs=MappingProxyType(kept))


def profiles_of(config: ModelConfig) -> list[ResolvedModel]:
    """List the models a config gives: the bare id for its `default` profile, `id:profile` for every other one."""
    return [
        ResolvedModel(config.id if name == DEFAULT_PROFILE else f"{config.id}:{name}", config, profile)
        for name, profile in config.profiles.items()
    ]
