"""Keeps the measurements and choices of loads on this machine: a small file next to the cache for each folder of
weights.

A file is ignored if it cannot be read, or was written for other weights, another machine or other versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sie_core.cache.disk.writing import write_whole
from sie_core.contracts import Device, KeptChoice, ResolvedModel, processor
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

log = logging.getLogger(__name__)

FOLDER = "sie-choices"
SERVED = "served"
"""Subject under which each load keeps the precision and the runner that serve."""
KEPT = 16
"""Choices about one thing (`KeptChoice.about`) of one folder of weights; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class WeightChoices:
    """The kept choices about one folder of weights.

    Args:
        file: The file of the choices.
        stamp: Their validity: the machine, the versions of plugins and the variables they read. Others are ignored.
    """

    file: Path
    stamp: Mapping[str, Any]

    def recall(self, about: str, setup: Mapping[str, str]) -> KeptChoice | None:
        """Return the choice; see `KeptChoices.recall`."""
        return next((each for each in self.all() if (each.about, each.setup) == (about, dict(setup))), None)

    def keep(self, choice: KeptChoice) -> None:
        """Keep a choice; see `KeptChoices.keep`."""
        others = [each for each in self.all() if (each.about, each.setup) != (choice.about, dict(choice.setup))]
        about = [each for each in others if each.about == choice.about]
        dropped = about[: max(0, len(about) + 1 - KEPT)]
        kept = [each for each in others if each not in dropped]
        content = {**self.stamp, "choices": [asdict(each) for each in [*kept, choice]]}
        try:
            write_whole(self.file, json.dumps(content, indent=1, default=dict).encode())
        except OSError as error:
            log.info("the %s chosen for this load is not kept for the next: %s", choice.about, error.strerror)

    def all(self) -> list[KeptChoice]:
        """List the choices valid here and now, the oldest first."""
        try:
            content = json.loads(self.file.read_bytes())
            if any(content.get(name) != value for name, value in self.stamp.items()):
                return []
            return [_choice(entry) for entry in content["choices"]]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return []


def kept_choices(settings: Settings, plugins: PluginSet, weights: Path) -> WeightChoices:
    """Find the choices about the folder `weights`."""
    name = hashlib.sha256(repr(sorted(_identities(weights))).encode()).hexdigest()[:32]
    versions = {report.distribution: report.version for report in plugins.reports if report.state != "blocked"}
    stamp = {
        "machine": processor().name,
        "instructions": hashlib.sha256(" ".join(sorted(processor().flags)).encode()).hexdigest()[:16],
        "versions": versions,
        "variables": {each.variable: os.environ.get(each.variable) or each.default for each in plugins.settings},
    }
    return WeightChoices(_folder(settings) / f"{name}.json", stamp)


def served_setup(model: ResolvedModel, device: Device) -> dict[str, str]:
    """Distinguish loads of the same weights, because `SERVED` is kept for each."""
    return {"model": model.id, "device": f"{device} {device.name}".rstrip()}


def _folder(settings: Settings) -> Path:
    """Return the folder below `SIE_LOCAL_CACHE`, or the one the Hub client has for other libraries."""
    if settings.local_cache is not None:
        return settings.local_cache.expanduser() / f".{FOLDER}"
    from huggingface_hub.constants import HF_ASSETS_CACHE

    return Path(HF_ASSETS_CACHE) / FOLDER


def _identities(weights: Path) -> Iterable[tuple[str, int, int]]:
    """Identify files by name, size and modification time, without reading them."""
    for pattern in ("*.safetensors", "config.json"):
        for file in weights.rglob(pattern):
            with contextlib.suppress(OSError):
                found = file.stat()
                yield str(file.relative_to(weights)), found.st_size, found.st_mtime_ns


def _choice(entry: Mapping[str, Any]) -> KeptChoice:
    choice = KeptChoice(
        entry["about"],
        entry["chosen"],
        entry["reason"],
        setup=dict(entry["setup"]),
        settled=entry.get("settled") is not False,
    )
    if not all(isinstance(text, str) for text in (choice.about, choice.chosen, choice.reason, *choice.setup.values())):
        raise TypeError("a kept choice holds texts alone")
    return choice
