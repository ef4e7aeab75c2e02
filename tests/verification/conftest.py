"""Tiny models of every head, verified in this process and served over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import httpx
import pytest
import torch
from sie_sdk import SIEClient

from sie_core.cache import build_chain
from sie_core.catalog import build_catalog
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import load_settings
from sie_core.testing import serving
from sie_core.verification import Report
from sie_core.verification.referring import References
from sie_core.verification.verifying import Served, compare, find_references, run_engine
from tests.verification.tiny import Shelf


class Verified(NamedTuple):
    """A report, and what it was made of."""

    report: Report
    served: Served
    references: References


Verify = Callable[..., Verified]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def verify(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Verify:
    """Verify a tiny model as `sie verify` does."""
    cache = tmp_path_factory.mktemp("cache")
    settings = load_settings(models_dir=shelf.models_dir, local_cache=cache, hf_fallback=False, device="cpu")
    plugins = discover(settings, BUILTINS)
    catalog, weights = build_catalog(settings, plugins), build_chain(settings, plugins)

    def run(name: str, precision: str = "float32") -> Verified:
        shelf.write(name)
        found = catalog.resolve(name)
        resolved = replace(found, profile=replace(found.profile, compute_precision=precision))
        served = run_engine(settings, plugins, resolved, weights, ())
        references = find_references(plugins, resolved, served.info, weights)
        return Verified(compare(served, references, {}), served, references)

    return run


@pytest.fixture(scope="session")
def server(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of all tiny models."""
    settings = {"models_dir": shelf.models_dir, "local_cache": tmp_path_factory.mktemp("served")}
    with serving(**settings, hf_fallback=False, device="cpu", default_compute_precision="float32") as served:
        yield served.url


@pytest.fixture(scope="session")
def client(server: str) -> Iterator[SIEClient]:
    """Our own client of it."""
    with SIEClient(server) as client:
        yield client


@pytest.fixture(scope="session")
def load(server: str, shelf: Shelf) -> Callable[[str], None]:
    """Write a model and have the server load it, so that no client has to try again."""

    def run(name: str) -> None:
        shelf.write(name)
        httpx.post(
            f"{server}/v1/encode/{name}", json={"items": [{"text": "a"}]}, headers={"Prefer": "wait=90"}, timeout=100
        )

    return run
