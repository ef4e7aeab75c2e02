"""Real folders of configs and weights for the catalog's tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sie_core.catalog import Catalog, build_catalog
from sie_core.plugins import PluginSet
from sie_core.settings import Settings


@pytest.fixture
def settings_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Settings with a models folder and an empty weight cache below `tmp_path`."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)

    def make(**values: Any) -> Settings:
        return Settings(**{"local_cache": tmp_path / "cache", **values})

    return make


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Write a model config into the models folder, or into another one."""

    def write(name: str, text: str, folder: str = "models") -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        file = tmp_path / folder / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def build(settings_with: Callable[..., Settings]) -> Callable[..., Catalog]:
    """Build the catalog of the models folder under given settings."""

    def make(plugins: PluginSet | None = None, **values: Any) -> Catalog:
        return build_catalog(settings_with(**values), plugins or PluginSet())

    return make


def write_weights(folder: Path, config: dict[str, Any] | None = None, modules: Sequence[Any] = ()) -> Path:
    """Write the root of a small model: config, one tensor, and its modules where there are any."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "bert", "architectures": ["BertModel"]}))
    save_file({"weight": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
    if modules:
        (folder / "modules.json").write_text(json.dumps(list(modules)))
    return folder


@pytest.fixture(name="write_weights")
def _write_weights() -> Callable[..., Path]:
    return write_weights
