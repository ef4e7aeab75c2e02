"""Ten thousand models: what a start, a delta and another export cost is printed (-s); what is asserted are counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from sie_bundle.bundles.changing import changed_registry
from sie_cluster.configs.applying import Held, apply_delta, apply_export
from sie_cluster.configs.delta import Delta, read_delta, write_deltas
from sie_cluster.settings import ClusterSettings

from sie_core.catalog.configs import reading
from sie_core.catalog.configs.reading import config_of
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from tests.cluster.configs.conftest import settings_of
from tests.cluster.configs.registries import BUNDLES, registry_of, text_of

MODELS = 10_000


@contextmanager
def row(what: str) -> Iterator[None]:
    """Print what something took: CPU seconds, and MB more."""
    process = psutil.Process()
    memory, began = process.memory_info().rss, time.process_time()
    yield
    took, more = time.process_time() - began, (process.memory_info().rss - memory) / 1e6
    print(f"{what:32} {took:6.3f} s CPU {more:7.1f} MB more")


def export_of(models: int) -> bytes:
    """An export of models with two profiles each."""
    rows = []
    for number in range(models):
        id_ = f"org-{number % 97}/model-{number}"
        content = {
            "sie_id": id_,
            "hf_id": id_,
            "hf_revision": f"{number:040x}",
            "max_sequence_length": 512,
            "tasks": {"encode": {"dense": {"dim": 384}}},
            "weights": {"model_type": "bert", "architectures": ["BertModel"]},
            "profiles": {
                "default": {"max_batch_tokens": 16_384, "adapter_options": {"runtime": {"normalize": True}}},
                "q": {"extends": "default", "adapter_options": {"runtime": {"normalize": False}}},
            },
        }
        rows.append(
            {
                "model_id": id_,
                "model_config": content,
                "raw_yaml": json.dumps(content, indent=1),
                "bundles_by_profile": {"default": ["default", "other"], "q": ["other"]},
                "source": "api",
                "epoch": number,
            }
        )
    empty = registry_of({}, 0)
    told = {
        "snapshot_version": 1,
        "epoch": models,
        "bundles": [{"bundle_id": each.name, "priority": each.priority, "engine": each.engine} for each in BUNDLES],
        "bundle_adapters": {each.name: list(each.adapters) for each in BUNDLES},
        "bundle_config_hashes": dict(empty.config_hashes),
        "models": rows,
    }
    return json.dumps(told).encode()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The configs that are checked, by their sources."""
    parsed: list[str] = []
    check: Callable[[object], reading.ModelFile] = reading.ModelFile.model_validate

    class Counting(reading.ModelFile):
        @classmethod
        def model_validate(cls, data: object, **given: object) -> reading.ModelFile:  # type: ignore[override]
            parsed.append(str(data["sie_id"]) if isinstance(data, dict) else "")
            return check(data)

    monkeypatch.setattr(reading, "ModelFile", Counting)
    return parsed


def test_a_delta_reads_one_config_of_ten_thousand_and_an_export_only_those_that_changed(parsed: list[str]) -> None:
    settings: ClusterSettings = settings_of("http://127.0.0.1:9")
    plugins: PluginSet = discover(settings, BUILTINS)
    raw = export_of(MODELS)
    print(f"\n{MODELS} models: an export of {len(raw) / 1e6:.1f} MB")
    with row("a start: the export is read"):
        held: Held = apply_export(raw, settings, plugins, None)
    assert (len(parsed), len(held.registry.routes)) == (MODELS, 2 * MODELS)
    delta = _delta_upon(held)
    parsed.clear()
    with row("a delta: a model is added"):
        after = apply_delta(held, delta, lambda model: True)
    assert parsed == ["org/new"]
    kept = [
        id_ for id_, config in held.registry.catalog.configs.items() if after.registry.catalog.configs[id_] is config
    ]
    assert (len(kept), len(after.registry.routes)) == (MODELS, 2 * MODELS + 1)
    parsed.clear()
    with row("the same export once more"):
        again = apply_export(raw, settings, plugins, after)
    assert (parsed, again.registry.config_hashes) == ([], held.registry.config_hashes)
    names = list(held.registry.routes)
    with row(f"{len(names)} models resolved"):
        for name in names:
            held.registry.resolve(name)


def _delta_upon(held: Held) -> Delta:
    """What a service that holds the same tells of a new model."""
    config = config_of(text_of("org/new").encode(), source="test", folder=None)
    registry = changed_registry(held.registry, "org/new", config, {"default": ["default"]}, epoch=held.told.epoch + 1)
    assert registry is not None
    told = write_deltas(registry, "org/new", producer="sie-config", affected_bundles=["default"])
    return read_delta(told[0][1], ("sie-config",))
