"""The core knows nothing of a cluster: it does not import it, and names its parts only where clients or plugins do."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "sie_core"
CONTRACTS = ("contracts/", "testing/checks/queue.py", "testing/checklist.py", "hookspecs.py", "plugins/")
"""What a plugin of a queue reads."""
OPERATORS = re.compile(r"\b(brokers?|sidecars?|nats|jetstream|adapter process|redeliver\w*)\b", re.IGNORECASE)
WORDS = re.compile(r"\b(gateways?|bundles?)\b", re.IGNORECASE)
SPOKEN = {
    "api/ops/cluster_status.py",
    "api/ops/health.py",
    "api/ops/models.py",
    "api/ops/models_schema.py",
    "api/ops/status.py",
    "api/inference/described.py",
    "api/pages/routes.py",
    "api/pools/__init__.py",
    "api/pools/routes.py",
    "api/pools/schema.py",
    "auth.py",
    "catalog/building.py",
    "cli/__init__.py",
    "settings.py",
}
"""Files whose fields, messages or settings clients know by these words, whichever program answers."""


def lines_with(word: re.Pattern[str], but: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in CORE.rglob("*.py"):
        name = file.relative_to(CORE).as_posix()
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if word.search(line)]
        if lines and not name.startswith(but):
            found[name] = lines
    return found


def test_nothing_of_the_core_imports_the_cluster_or_bundles():
    assert lines_with(re.compile(r"(from|import) sie_(cluster|bundle)\b"), ()) == {}


def test_the_core_has_no_word_for_what_only_a_cluster_has():
    found = lines_with(OPERATORS, CONTRACTS)
    found.pop("cli/__init__.py")  # says which distribution brings `sie sidecar`
    assert found == {}


def test_words_that_clients_know_stand_where_they_are_spoken_alone():
    assert lines_with(WORDS, CONTRACTS).keys() - SPOKEN == set()
