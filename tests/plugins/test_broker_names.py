"""The core speaks of queues: which broker they are of is told by its settings alone."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_core_names_no_broker_but_in_its_settings() -> None:
    """Variables, the codes of the published config service and distributions keep their names; all else speaks of
    queues."""
    found = []
    for file in (ROOT / "sie_core").rglob("*.py"):
        if file.name == "settings.py":
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            rest = re.sub(
                r"SIE_NATS_[A-Z_]*[A-Z]|settings\.nats_\w+|\"sie-nats\"|\"nats_unavailable|\"nats_publish_", "", line
            )
            if re.search("nats|jetstream", rest, re.IGNORECASE):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
