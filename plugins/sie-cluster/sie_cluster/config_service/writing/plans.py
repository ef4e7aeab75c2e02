"""Plans of writes: what a POST, PUT or DELETE would change and answer. Nothing is kept or told yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.registry import Registry

from sie_cluster.config_service.held import Held, config_of_model
from sie_cluster.config_service.refusals import refusal, validation_error
from sie_cluster.config_service.results import Answer, Change
from sie_cluster.config_service.store.records import StoredModel
from sie_cluster.config_service.writing.bodies import Body, check_fields, check_id
from sie_cluster.config_service.writing.merging import merge, same, write_yaml
from sie_cluster.messages.export import bundles_by_profile, exported_content
from sie_core.catalog.configs.reading import ConfigError
from sie_core.catalog.configs.snapshot import profiles_of
from sie_core.contracts import ModelConfig

_CODE_FROM = ("hf_id", "hf_revision", "weights_path", "hf_tokenizer_dependencies")
"""The fields that name where weights, and the code that comes with them, are from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A write that may be done."""

    answer: Answer
    """Without what counts for every answer: epoch, warnings, the service's name."""
    model_id: str
    changes: bool = False
    model: StoredModel | None = None
    """What is written; None where the model is removed."""
    config: ModelConfig | None = None
    """The config in force afterwards; None where there is none."""
    profiles_added: tuple[str, ...] = ()
    affected_bundles: tuple[str, ...] = ()

    def answer_at(self, epoch: int, name: str) -> Answer:
        """Return the whole answer.

        Args:
            epoch: After the write.
            name: Of the service.
        """
        body = {**self.answer.body, "epoch": epoch, "warnings": [], "router_id": name}
        return Answer(self.answer.status, body)

    def change(self, held: Held) -> Change:
        """Return the change; `held` is what is held after it."""
        source = held.source(self.model_id)
        return Change(self.model_id, source, self.profiles_added, self.affected_bundles, held.registry)


def plan_create(held: Held, placement: Placement, body: Body) -> Plan:
    """Plan a POST: profiles are added, nothing else changes.

    Raises:
        InferenceError: The body is wrong, in conflict with what is there, or no bundle can serve what it adds.
    """
    model_id = check_id(body.model_id)
    check_fields(body.content, whole=False)
    existing = held.content(model_id)
    if existing is None or not existing.get("trust_remote_code"):
        _refuse_privileges(held, model_id, body.content)
    merged = merge(model_id, existing, body)
    told: dict[str, Any] = {"model_id": model_id, "created_profiles": list(merged.created)}
    told["existing_profiles_skipped"] = list(merged.skipped)
    if not merged.created:
        return Plan(Answer(200, {**told, "routable_bundles_by_profile": {}}), model_id)
    model = StoredModel(text=merged.text, content=dict(merged.content))
    config = _config(held, model_id, model)
    added = replace(config, profiles={name: config.profiles[name] for name in merged.created})
    routable = placement.place(added)
    affected = _affected(
        held.registry, model_id, [*routable.values(), *bundles_by_profile(config, held.registry).values()]
    )
    told["routable_bundles_by_profile"] = {name: list(bundles) for name, bundles in routable.items()}
    return Plan(Answer(201, told), model_id, True, model, config, merged.created, affected)


def plan_put(held: Held, placement: Placement, model_id: str, body: Body) -> Plan:
    """Plan a PUT: the config is what the body says.

    Raises:
        InferenceError: The body is wrong, or no bundle can serve one of its profiles.
    """
    check_id(model_id)
    if body.model_id not in (None, model_id):
        told = f"sie_id: {body.model_id!r:.300} is not the model of the path, {model_id}: leave it out, or correct one."
        raise refusal("INVALID_INPUT", told, param="sie_id", error="model_id_mismatch")
    content = body.content if body.model_id is not None else {"sie_id": model_id, **body.content}
    check_fields(content, whole=True)
    existing = held.content(model_id)
    if existing is not None and same(existing, content):
        return Plan(Answer(200, _replaced(model_id, False, ())), model_id)
    _refuse_privileges(held, model_id, content)
    text = body.text if content is body.content else write_yaml(content)
    model = StoredModel(text=text, content=dict(content))
    config = _config(held, model_id, model)
    affected = _affected(held.registry, model_id, placement.place(config).values())
    known = held.registry.catalog.configs.get(model_id)
    added = tuple(name for name in config.profiles if known is None or name not in known.profiles)
    return Plan(Answer(200, _replaced(model_id, True, affected)), model_id, True, model, config, added, affected)


def plan_delete(held: Held, placement: Placement, model_id: str) -> Plan:
    """Plan a DELETE: what was written of a model is removed, and the base's config counts again where there is one.

    Raises:
        InferenceError: `model_id` cannot be a model's.
    """
    check_id(model_id)
    base = held.base.configs.get(model_id)
    deleted = model_id in held.state.models
    told: dict[str, Any] = {
        "model_id": model_id,
        "deleted": deleted,
        "unchanged": not deleted,
        "fallback": None if base is None else "filesystem",
        "affected_bundles": [],
        "distribution": "epoch_export",
    }
    if not deleted:
        return Plan(Answer(200, told), model_id)
    after = () if base is None else (placement.bundles_of(model) for model in profiles_of(base))
    affected = _affected(held.registry, model_id, after)
    told["affected_bundles"] = list(affected)
    return Plan(Answer(200, told), model_id, True, None, base, (), affected)


def _replaced(model_id: str, replaced: bool, affected: Iterable[str]) -> dict[str, Any]:
    return {"model_id": model_id, "replaced": replaced, "unchanged": not replaced, "affected_bundles": list(affected)}


def _config(held: Held, model_id: str, model: StoredModel) -> ModelConfig:
    try:
        config = config_of_model(model_id, model)
    except ConfigError as error:
        lines = str(error).replace(f"config service: {model_id}: ", "").splitlines()
        raise validation_error([("", line) for line in lines]) from None
    if config.unserved is not None:
        told = "unserved: a model that is written is served: leave the field out, or DELETE the model"
        raise validation_error([("unserved", told)])
    _refuse_taken(held.registry, config)
    return config


def _refuse_taken(registry: Registry, config: ModelConfig) -> None:
    """Refuse profiles whose `id:profile` is the name of another model."""
    taken = {
        model.profile.name: other.config.id
        for model in profiles_of(config)
        if (other := registry.catalog.entries.get(model.id)) is not None and other.config.id != config.id
    }
    if taken:
        name, other_id = next(iter(taken.items()))
        told = f"{config.id} with the profile {name} would have a name that {other_id} has: choose another name."
        raise refusal("CONTENT_CONFLICT", told, conflicting_profiles=list(taken))


def _refuse_privileges(held: Held, model_id: str, content: Mapping[str, Any]) -> None:
    """Refuse what lets code of others run in workers, unless the base's config allows it for the same weights."""
    base = held.base.configs.get(model_id)
    allowed: Mapping[str, Any] = {} if base is None else exported_content(base)
    other = [name for name in _CODE_FROM if content.get(name) != allowed.get(name)]
    if content.get("trust_remote_code") and (other or not allowed.get("trust_remote_code")):
        told = (
            "trust_remote_code: true: code that comes with weights is allowed by a file in SIE_MODELS_DIR of the "
            "config service alone"
        ) + (f", and for the weights it names: {', '.join(other)} would be others" if other else "")
        raise validation_error([("trust_remote_code", told)])


def _affected(registry: Registry, model_id: str, after: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Name the bundles that serve a model now or afterwards, by priority."""
    config = registry.catalog.configs.get(model_id)
    before = () if config is None else bundles_by_profile(config, registry).values()
    names = {name for bundles in (*before, *after) for name in bundles}
    return tuple(name for name in registry.bundles if name in names)
