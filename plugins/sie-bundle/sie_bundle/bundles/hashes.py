"""Hashes by which config service, gateways and workers check that they know the same configs and bundles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sie_bundle.bundles.placement import BundleView
from sie_core.contracts import ModelConfig, Profile


def bundle_config_hash(configs: Iterable[ModelConfig]) -> str:
    """Hash the configs of which a bundle serves any profile, as SHA-256 in hex; empty if there are none."""
    return hash_rows({config.id: config_row(config) for config in configs})


def config_row(config: ModelConfig) -> str:
    """Write the parts of a config that count for a bundle's hash as JSON."""
    profiles = [config.profiles[name] for name in sorted(config.profiles)]
    return _json({"sie_id": config.id, "revision": config.hf_revision, "profiles": list(map(_profile, profiles))})


def hash_rows(rows: Mapping[str, str]) -> str:
    """Hash rows of configs by their ids."""
    return _sha256(f"[{','.join(rows[id_] for id_ in sorted(rows))}]") if rows else ""


def bundles_hash(bundles: Iterable[BundleView]) -> str:
    """Hash the parts of every bundle that clients read."""
    return _sha256(
        _json(
            [
                {
                    "name": bundle.name,
                    "priority": bundle.priority,
                    "adapters": sorted(bundle.adapters),
                    "engine": bundle.engine,
                }
                for bundle in sorted(bundles, key=lambda each: each.name)
            ]
        )
    )


def config_hashes_hash(hashes: Mapping[str, str]) -> str:
    """Hash the bundles' config hashes by name, so that one comparison detects any difference."""
    return _sha256(_json(dict(hashes)))


def _profile(profile: Profile) -> dict[str, Any]:
    options = {name: value for name in ("loadtime", "runtime") if (value := getattr(profile, name))}
    return {
        "name": profile.name,
        "config": {
            "adapter_path": profile.adapter_path,
            "max_batch_tokens": profile.max_batch_cost,
            "compute_precision": profile.compute_precision,
            "adapter_options": options or None,
        },
    }


_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
