"""The models that are attacked: one that sees, one of multi-vectors, one whose load never ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.bench.fairness.attacks import EXTRACTOR, HANGING, MULTI, SIGHTED

SIGHT = 224
"""Pixels of an edge, as CLIP has them: a picture of one pixel becomes 600 kB."""


def write_models(folder: Path, hold: Path) -> None:
    """Write weights and configs; the one model loads as long as the file `hold` is there."""
    from tests.bench.operations import models
    from tests.pytorch.vision.support import write_clip

    write_clip(folder / "clip", size=SIGHT)
    multi = models.write_models(folder / "operations", [MULTI_OPERATION], tiny=True)[MULTI_OPERATION]
    hold.touch()
    configs = folder / "configs"
    configs.mkdir()
    _write(configs / "sighted.yaml", {"sie_id": SIGHTED, "weights_path": str(folder / "clip")})
    _write(configs / "multi.yaml", {"sie_id": MULTI, "weights_path": multi})
    profile = {"adapter_path": "fake", "adapter_options": {"loadtime": {"load_hold": str(hold), "record": False}}}
    fake = {"package_backed": True, "tasks": {"encode": {"dense": {"dim": 8}}}, "profiles": {"default": profile}}
    _write(configs / "hanging.yaml", {"sie_id": HANGING, **fake})
    profile = {"adapter_path": "fake", "adapter_options": {"loadtime": {"record": False}}}
    fake = {"package_backed": True, "tasks": {"extract": {"labels": "required"}}, "profiles": {"default": profile}}
    _write(configs / "extractor.yaml", {"sie_id": EXTRACTOR, "max_sequence_length": 10**6, **fake})


MULTI_OPERATION = "multivector"


def _write(file: Path, config: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(config))
