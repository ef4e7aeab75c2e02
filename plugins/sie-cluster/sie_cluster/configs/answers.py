"""The answers of the read routes below `/v1/configs`, at config service and gateway, made of a registry alone.

Clients of the published config service read a snake-case code, as `error` of an error's details: the code's own in
lower case, unless one is given here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import yaml
from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry

from sie_core.api.body import strict_json
from sie_core.api.body.body import kind_of
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.snapshot import DEFAULT_PROFILE, listed_id, profiles_of
from sie_core.catalog.wording import did_you_mean, short
from sie_core.contracts import InferenceError, ModelConfig

YAML_TYPE: Final = "application/x-yaml"
SOURCE: Final = "filesystem"
"""Where bundles come from: the API takes none."""
_RESERVED: Final = "status"
"""The last part of a path that no id may end with: `/models/{id}/status` is a route of gateways."""


def models_listing(registry: Registry, sources: Mapping[str, str]) -> dict[str, Any]:
    """Answer `GET /models`: every config, and each of its profiles but the default one under a name of its own.

    Args:
        registry: What is served.
        sources: By model, `api` or `filesystem`.
    """
    models = []
    for config_id, config in sorted(registry.catalog.configs.items()):
        source = sources.get(config_id, SOURCE)
        models.append({"model_id": config_id, "profiles": list(config.profiles), "source": source})
        models += [
            {"model_id": each.id, "profiles": [each.profile.name], "source": source}
            for each in profiles_of(config)
            if each.profile.name != DEFAULT_PROFILE
        ]
    return {"models": models}


def model_yaml(registry: Registry, model_id: str) -> str:
    """Answer `GET /models/{id}`: the YAML of a config; of `id:profile` a few lines that say what it is part of.

    Raises:
        InferenceError: `INVALID_INPUT`, `MODEL_NOT_FOUND`.
    """
    check_model_id(model_id)
    name = listed_id(model_id)
    config = registry.catalog.configs.get(name)
    if config is not None:
        return config_yaml(config)
    base, _, profile = name.rpartition(":")
    config = registry.catalog.configs.get(base)
    if config is None or profile not in config.profiles:
        raise model_not_found(registry, model_id)
    return _yaml({"sie_id": name, "variant_of": base, "profile": profile})


def config_yaml(config: ModelConfig) -> str:
    """Return the YAML of a config, written of its content where it was never a text."""
    return config.text or _yaml(dict(config.content))


def check_model_id(model_id: str) -> str:
    """Return an id that a config may have.

    Raises:
        InferenceError: `INVALID_INPUT`: it is none.
    """
    if model_id.rpartition("/")[2] == _RESERVED:
        why = "none may be or end with /status, which is a route of gateways"
    elif not is_model_id(model_id):
        why = ID_RULE
    else:
        return model_id
    raise _refused("invalid_model_id", f"The model id {short(model_id)} is not well formed: {why}.", "model_id")


def model_not_found(registry: Registry, model_id: str) -> InferenceError:
    """Say that there is no config of that id, with the nearest ones."""
    hint = did_you_mean(model_id, registry.catalog.configs) or " GET /v1/configs/models lists those that are there."
    return InferenceError("MODEL_NOT_FOUND", f"There is no config of {short(model_id)}.{hint}", param="model_id")


def resolve_answer(registry: Registry, body: bytes | memoryview) -> dict[str, Any]:
    """Answer `POST /resolve`: the bundle whose workers serve a model.

    Raises:
        InferenceError: `INVALID_INPUT`, `MODEL_NOT_FOUND`, `BUNDLE_CONFLICT`.
    """
    with _named("parse_error"):
        data = strict_json.loads(body)
    model, bundle = _text(data, "model"), _text(data, "bundle", needed=False)
    assert model is not None
    with _named("invalid_model_spec"):
        route = registry.resolve(model, bundle)
    bare = route.model.profile.name == DEFAULT_PROFILE
    return {
        "model": route.model.id,
        "resolved_bundle": route.bundle,
        "compatible_bundles": list(route.compatible),
        "profiles": list(route.model.config.profiles) if bare else [route.model.profile.name],
    }


def bundles_listing(registry: Registry) -> dict[str, Any]:
    """Answer `GET /bundles`, by priority."""
    return {
        "bundles": [
            {
                "bundle_id": each.name,
                "engine": each.engine,
                "priority": each.priority,
                "adapter_count": len(each.adapters),
                "source": SOURCE,
            }
            for each in registry.bundles.values()
        ]
    }


def bundle_yaml(registry: Registry, bundle_id: str) -> str:
    """Answer `GET /bundles/{id}`.

    Raises:
        InferenceError: `NOT_FOUND`.
    """
    bundle: BundleView | None = registry.bundles.get(bundle_id)
    if bundle is None:
        raise InferenceError(
            "NOT_FOUND",
            f"There is no bundle {short(bundle_id)}; there are {', '.join(registry.bundles) or 'none'}.",
            param="bundle_id",
            details={"error": "bundle_not_found"},
        )
    told = {"name": bundle.name, "engine": bundle.engine, "priority": bundle.priority, "source": SOURCE}
    return _yaml({**told, "adapters": list(bundle.adapters)})


def epoch_answer(registry: Registry) -> dict[str, Any]:
    """Answer `GET /epoch`."""
    return {
        "epoch": registry.catalog.config_epoch or 0,
        "bundles_hash": registry.bundles_hash,
        "bundle_config_hashes_hash": registry.config_hashes_hash,
    }


def _yaml(told: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
    return text


def _text(data: object, field: str, *, needed: bool = True) -> str | None:
    """Take a text from the body of a request."""
    if not isinstance(data, dict):
        raise _refused("parse_error", f"The body must be a map of fields, not {kind_of(data)}.", None)
    value = data.get(field)
    if isinstance(value, str) and value:
        return value
    if value in (None, "") and not needed:
        return None
    if value in (None, ""):
        raise _refused("missing_field", f"`{field}` is required.", field)
    raise _refused("parse_error", f"`{field}` must be a text, not {kind_of(value)}.", field)


def _refused(error: str, message: str, param: str | None) -> InferenceError:
    return InferenceError("INVALID_INPUT", message, param=param, details={"error": error})


@contextmanager
def _named(error: str) -> Iterator[None]:
    """Give `INVALID_INPUT` a snake-case code of its own."""
    try:
        yield
    except InferenceError as raised:
        if raised.code == "INVALID_INPUT":
            raised.details["error"] = error
        raise
