"""Twelve real-sized models, what one of them costs, and how long the tests go on: `--soak` for the long version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conftest import run_server
from tests.soak.many.models import names, write_models
from tests.soak.many.serving import models, resident, until

HELD = 4
"""How many models the limit holds."""
THRESHOLD = 0.85


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the long version of the tests in tests/soak")


@dataclass(frozen=True)
class Catalog:
    """The twelve models and what was measured of them."""

    folder: Path
    base: int
    """Bytes of the process after the first load and unload."""
    cost: int
    """Bytes one model takes, as `/v1/models` says."""

    def limit(self, held: int = HELD) -> int:
        """A limit that holds so many models below its threshold, and not one more."""
        return int((self.base + (held + 0.5) * self.cost) / THRESHOLD)


@pytest.fixture(scope="session")
def long_version(request: pytest.FixtureRequest) -> bool:
    """Whether `--soak` is given."""
    return bool(request.config.getoption("--soak", default=False))


@pytest.fixture(scope="session")
def requests_sent(long_version: bool) -> int:
    """How many requests a test sends."""
    return 2000 if long_version else 120


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Write the models, and measure what the first costs on its second load."""
    folder = tmp_path_factory.mktemp("twelve")
    write_models(folder)
    first = names()[0]
    env = {"SIE_MODELS_DIR": str(folder), "SIE_DEVICE": "cpu", "SIE_IDLE_EVICT_S": "0.5"}
    with run_server(tmp_path_factory.mktemp("baseline"), env) as server:
        base = 0
        for _ in range(2):
            until(lambda: models(server.url)[first]["state"] == "available", "the unload")
            base = resident(server)
            body = {"model": first, "input": ["a text"]}
            httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=60).raise_for_status()
        return Catalog(folder, base, int(models(server.url)[first]["memory_bytes"]))  # type: ignore[call-overload]
