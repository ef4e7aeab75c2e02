"""Deltas: what the config service broadcasts of each change, and what a follower checks before it believes one.

A delta is a hint. A follower that misses or refuses one fetches the export.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sie_bundle.bundles.registry import Registry

from sie_cluster.messages.export import bundles_by_profile, exported_content
from sie_cluster.queue.subjects import ALL_MODELS, config_subject
from sie_core.catalog.configs.reading import describe_problems
from sie_core.contracts import ModelConfig
from sie_core.contracts.model.config import DEFAULT_POOL

Refusal = Literal[
    "too_large", "unreadable", "untrusted", "old_epoch", "gap", "bundles", "without_config", "config", "wrong_hash"
]
"""Why a delta is not applied.

`too_large`: beyond `MOST_BYTES`, or its config beyond `LARGEST_TOLD`. `unreadable`: no JSON, nested too deep, or a
field is missing or wrong. `untrusted`: its producer is not one of `SIE_NATS_CONFIG_TRUSTED_PRODUCERS`. `old_epoch`: not
above what is known. `gap`: another change came before it and is not known here. `bundles`: the bundles have changed.
`without_config`: the export alone tells the config. `config`: its YAML cannot be used, an alias bomb among others.
`wrong_hash`: the configs have other hashes afterwards than it states.
"""

MOST_BYTES = 1 << 20
"""Of a delta."""
LARGEST_TOLD = 1 << 17
"""Characters of the largest config that a delta holds: reading YAML takes about 10 µs a character."""
_MOST_NAMES = 10_000

_Name = Annotated[str, Field(max_length=512)]
_Names = Annotated[list[_Name], Field(max_length=_MOST_NAMES)]
_Hashes = dict[_Name, _Name]
_Epoch = Annotated[int, Field(ge=0, lt=2**63)]


class RefusedDelta(Exception):
    """A delta that is not applied; the message holds nothing of it that was not checked."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason: Refusal = reason


class Delta(BaseModel):
    """One change of the config service's models: of what is told, the fields that this project's followers go by."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())

    router_id: _Name
    """Who says so: the config service's name, with its instance's after a `-`."""
    bundle_id: _Name = ""
    """The bundle on whose subject it is told."""
    epoch: _Epoch
    """The service's epoch once the change was made."""
    previous_epoch: _Epoch
    """The epoch it was made upon."""
    bundle_config_hash: _Name = ""
    """Of `bundle_id`, afterwards."""
    model_id: _Name
    model_config_: Annotated[str, Field(alias="model_config")] = ""
    """The whole config in YAML. Where it is empty and the model is not `deleted`, the export has to be asked."""
    deleted: bool = False
    source: _Name = "api"
    bundles_by_profile: dict[_Name, _Names] = {}
    """The bundles that serve each profile."""
    bundle_config_hashes: _Hashes
    """Of every bundle, afterwards."""
    bundles_hash: _Name


def write_deltas(
    registry: Registry,
    model_id: str,
    *,
    producer: str,
    affected_bundles: Sequence[str],
    profiles_added: Sequence[str] = (),
    source: str = "api",
    most_bytes: int = MOST_BYTES,
) -> list[tuple[str, bytes]]:
    """Write what is broadcast of a change: subjects with their payloads, one for all and one for each bundle.

    Args:
        registry: As it is after the change; its catalog's `config_epoch` is the epoch of the change. A model that it
            does not hold was removed.
        model_id: The model that changed.
        producer: The config service's `router_id`.
        affected_bundles: The bundles that served the model before or serve it afterwards.
        profiles_added: The profiles that the change created.
        source: `api` or `filesystem`, as the export says.
        most_bytes: What the transport carries in a message. A config that is larger, or beyond `LARGEST_TOLD`, is left
            out, and followers fetch the export.
    """
    config = registry.catalog.configs.get(model_id)
    epoch, text = registry.catalog.config_epoch or 0, "" if config is None else _text(config)
    told: dict[str, Any] = {
        "router_id": producer,
        "epoch": epoch,
        "previous_epoch": max(0, epoch - 1),
        "model_id": model_id,
        "profiles_added": list(profiles_added),
        "model_config": text if len(text) <= LARGEST_TOLD else "",
        "deleted": config is None,
        "affected_bundles": list(affected_bundles),
        "pool": DEFAULT_POOL if config is None else config.pool,
        "source": source,
        "bundles_by_profile": {} if config is None else bundles_by_profile(config, registry),
        "bundle_config_hashes": dict(registry.config_hashes),
        "bundle_pool_config_hashes": {
            name: dict(registry.pool_config_hashes.get(name, {})) for name in affected_bundles
        },
        "bundle_adapters": {
            name: list(registry.bundles[name].adapters) for name in affected_bundles if name in registry.bundles
        },
        "bundles_hash": registry.bundles_hash,
    }
    first = affected_bundles[0] if affected_bundles else ""
    messages = [(ALL_MODELS, first), *((config_subject(name), name) for name in affected_bundles)]
    return [(subject, _written(told, name, most_bytes)) for subject, name in messages]


def read_delta(payload: bytes, trusted: Collection[str]) -> Delta:
    """Check what can be told of a delta by itself.

    Args:
        payload: As it was received.
        trusted: The names of producers; `name` and `name-…` are believed.

    Raises:
        RefusedDelta: `too_large`, `unreadable`, `untrusted`.
    """
    if len(payload) > MOST_BYTES:
        raise RefusedDelta("too_large", f"{len(payload)} bytes are beyond {MOST_BYTES}")
    try:
        delta = Delta.model_validate(orjson.loads(payload))
    except orjson.JSONDecodeError as error:
        raise RefusedDelta("unreadable", f"it is no JSON: {error.msg[:100]}") from None
    except ValidationError as error:
        raise RefusedDelta("unreadable", "; ".join(describe_problems(error)[:3])) from None
    if not is_trusted(delta.router_id, trusted):
        raise RefusedDelta(
            "untrusted", f"its producer {delta.router_id[:100]!r} is none of {', '.join(trusted) or '(none)'}"
        )
    if len(delta.model_config_) > LARGEST_TOLD:
        raise RefusedDelta("too_large", f"a config of {len(delta.model_config_)} characters is beyond {LARGEST_TOLD}")
    return delta


def is_trusted(producer: str, trusted: Collection[str]) -> bool:
    """Whether a producer is one of `trusted`, or an instance of one: `name-…`."""
    return any(producer == name or producer.startswith(f"{name}-") for name in trusted)


def _text(config: ModelConfig) -> str:
    """Return the YAML of a config; what followers cannot find by relative paths is written with whole ones."""
    content = exported_content(config)
    if config.text and content == config.content:
        return config.text
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)


def _written(told: dict[str, Any], bundle: str, most_bytes: int) -> bytes:
    hash_ = told["bundle_config_hashes"].get(bundle, "")
    whole = orjson.dumps({**told, "bundle_id": bundle, "bundle_config_hash": hash_})
    if len(whole) <= most_bytes:
        return whole
    return orjson.dumps({**told, "bundle_id": bundle, "bundle_config_hash": hash_, "model_config": ""})
