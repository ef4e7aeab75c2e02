"""The models of a soak: the fakes without their record, and some that are loaded and unloaded all the time."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tests.bench.processes.servers import MODEL

HEAVY_BYTES = 384 * 2**20
LIMIT_BYTES = 1300 * 2**20
"""For the server, of which torch and the embedded default take 400 to 700 MB: below its threshold there is room for one
heavy model and not for two, so that one pushes the other out."""
IDLE_S = 1.0
"""After so long an unused model goes: after a round of loads every one of them does."""
HEAVY = ("soak/heavy-a", "soak/heavy-b")
COPY = "soak/copy"
"""A real one: the embedded default under another name."""
ROUND = (COPY, *HEAVY)
"""What is loaded in turn."""
LEAKING = "soak/leaking"
LEAK_BYTES = 1_000_000


def write_models(folder: Path) -> None:
    """Write their configs."""
    for file in (files("sie_fake") / "models").iterdir():
        if not file.name.endswith(".yaml"):
            continue
        shipped = yaml.safe_load(file.read_text(encoding="utf-8"))
        name = file.name.removesuffix(".yaml")
        _write(folder, {**shipped, "sie_id": f"soak/{name}", "profiles": _unrecorded(shipped["profiles"])})
    for name in HEAVY:
        _write(folder, _dense(name, memory_bytes=HEAVY_BYTES))
    _write(folder, _dense(LEAKING, leak_bytes=LEAK_BYTES))
    weights = {"model_type": "bert", "architectures": ["BertModel"]}
    _write(folder, {"sie_id": COPY, "hf_id": MODEL, "weights": weights, "tasks": {"encode": {"dense": {}}}})


def _unrecorded(profiles: dict[str, Any]) -> dict[str, Any]:
    for profile in profiles.values():
        profile.setdefault("adapter_options", {}).setdefault("loadtime", {})["record"] = False
    return profiles


def _dense(name: str, **loadtime: int) -> dict[str, Any]:
    profile = {"adapter_path": "fake", "max_batch_tokens": 16384, "adapter_options": {"loadtime": loadtime}}
    tasks = {"encode": {"dense": {"dim": 8}}}
    return {"sie_id": name, "package_backed": True, "tasks": tasks, "profiles": _unrecorded({"default": profile})}


def _write(folder: Path, config: dict[str, Any]) -> None:
    (folder / f"{config['sie_id'].rpartition('/')[2]}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
