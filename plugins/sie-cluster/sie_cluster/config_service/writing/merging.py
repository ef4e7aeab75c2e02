"""Merges what a POST says into a config: profiles are added, and nothing that is there changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from sie_cluster.config_service.refusals import refusal, validation_error
from sie_cluster.config_service.writing.bodies import ID_FIELDS, Body
from sie_core.catalog.configs.reading import LARGEST_CONFIG, describe_problems
from sie_core.catalog.configs.schema import ModelFile, ProfileFile
from sie_core.catalog.configs.snapshot import DEFAULT_PROFILE
from sie_core.contracts.model.config import DEFAULT_POOL

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Merged:
    """A config after a POST."""

    content: Mapping[str, Any]
    text: str
    """Its YAML."""
    created: tuple[str, ...]
    """The profiles that are new."""
    skipped: tuple[str, ...]
    """Those that are there, and equal."""


def merge(model_id: str, existing: Mapping[str, Any] | None, body: Body) -> Merged:
    """Add the profiles of a body to a config; its other fields have to be as they are, or left out.

    Args:
        model_id: Of both.
        existing: What the config says; None where there is none yet.
        body: With checked types.

    Raises:
        InferenceError: `CONTENT_CONFLICT`: a profile or a field is there with other content. `VALIDATION_ERROR`: the
            pool would change, or the config would be wrong or too long.
    """
    given: Mapping[str, Any] = body.content["profiles"]
    if existing is None:
        _validated(body.content)
        return Merged(body.content, body.text, tuple(given), ())
    present: Mapping[str, Any] = existing.get("profiles") or {DEFAULT_PROFILE: {}}
    created = tuple(name for name in given if name not in present)
    fields = {name: value for name, value in body.content.items() if name not in ("profiles", *ID_FIELDS)}
    profiles = {**present, **{name: given[name] for name in created}}
    _refuse_conflicts(model_id, existing, fields, profiles, given)
    content = {**existing, "profiles": profiles}
    text = write_yaml(content) if created else ""
    return Merged(content, text, created, tuple(name for name in given if name in present))


def write_yaml(content: Mapping[str, Any]) -> str:
    """Write a config as YAML.

    Raises:
        InferenceError: `VALIDATION_ERROR`: it is too long.
    """
    text: str = yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    if (size := len(text.encode())) > LARGEST_CONFIG:
        told = f"the config would have {size} bytes; it has {LARGEST_CONFIG} at most"
        raise validation_error([("profiles", told)])
    return text


def same(one: object, other: object) -> bool:
    """Whether two values of configs say the same: equal numbers do, and `true` is no number."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _refuse_conflicts(
    model_id: str,
    existing: Mapping[str, Any],
    fields: Mapping[str, Any],
    profiles: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
    # Compared as they are understood: a field that states its default equals one that is left out.
    before = _validated(existing)
    after = _validated({**existing, **fields, "profiles": profiles})
    changed = [name for name in fields if _effective(before, name) != _effective(after, name)]
    if "pool" in changed:
        told = (
            f"pool: {fields['pool']!r}: {model_id} is in the pool {before.pool or DEFAULT_POOL}; a POST cannot move it"
        )
        raise validation_error([("pool", told)])
    differing = [name for name in given if name in before.profiles and _differs(given[name], before.profiles[name])]
    if not changed and not differing:
        return
    conflicts: dict[str, Any] = {"conflicting_fields": changed, "conflicting_profiles": differing}
    told = " and ".join(
        f"{kind} {', '.join(names)}" for kind, names in (("the fields", changed), ("the profiles", differing)) if names
    )
    raise refusal(
        "CONTENT_CONFLICT",
        f"{model_id} has {told} already, with other content. A POST only adds profiles; PUT replaces the config.",
        **{name: names for name, names in conflicts.items() if names},
    )


def _effective(config: ModelFile, field: str) -> object:
    return getattr(config, field) or (DEFAULT_POOL if field == "pool" else getattr(config, field))


def _differs(given: object, present: ProfileFile) -> bool:
    return not same(ProfileFile.model_validate(given).model_dump(), present.model_dump())


def _validated(content: Mapping[str, Any]) -> ModelFile:
    try:
        return ModelFile.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        locs = (".".join(map(str, each["loc"])) for each in found)
        raise validation_error(list(zip(locs, describe_problems(error), strict=True))) from None
