"""Tiny models of every head, verified in this process and served over HTTP by the same engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from sie_kit import serving
from sie_kit.server import Served as Serving
from sie_sdk import SIEClient

from sie_core.cache import WeightChain, build_chain
from sie_core.catalog import Catalog, build_catalog
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings, load_settings
from sie_core.verification import Report
from sie_core.verification.referring import References
from sie_core.verification.verifying import Served, ask_engine, compare, find_references, run_engine
from tests.clients.conftest import ClientEnvironment, published_sdk
from tests.clients.published import PublishedClient
from tests.gliner.library import build as gliner_python
from tests.verification.tiny import Shelf

__all__ = ["published_sdk"]

LOAD_AND_ASK_S = 100


class Verified(NamedTuple):
    """A report, and what it was made of."""

    report: Report
    served: Served
    references: References


class Parts(NamedTuple):
    """What `sie verify` is composed of."""

    settings: Settings
    plugins: PluginSet
    catalog: Catalog
    weights: WeightChain


Verify = Callable[[str], Verified]
Reverify = Callable[..., Report]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def parts(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    cache = tmp_path_factory.mktemp("cache")
    settings = load_settings(
        models_dir=shelf.models_dir,
        local_cache=cache,
        hf_fallback=False,
        device="cpu",
        default_compute_precision="float32",
    )
    plugins = discover(settings, BUILTINS)
    return Parts(settings, plugins, build_catalog(settings, plugins), build_chain(settings, plugins))


@pytest.fixture(scope="session")
def server(parts: Parts) -> Iterator[Serving]:
    """A server of all tiny models."""
    with serving(**parts.settings.model_dump()) as served:
        yield served


@pytest.fixture(scope="session")
def verified(parts: Parts, server: Serving, shelf: Shelf) -> Verify:
    """What the server's engine answers to `sie verify`, asked in this process once; it keeps the model."""

    @cache
    def run(name: str) -> Verified:
        shelf.write(name)
        asked = asyncio.run_coroutine_threadsafe(ask_engine(server.engine, name, ()), server.loop)
        served = asked.result(LOAD_AND_ASK_S)
        references = find_references(parts.plugins, parts.catalog.resolve(name), served.info, parts.weights)
        with pytest.MonkeyPatch.context() as environment:
            if served.info.adapter == "gliner":
                environment.setenv("SIE_GLINER_PYTHON", str(gliner_python()))
            return Verified(compare(served, references, {}), served, references)

    return run


@pytest.fixture(scope="session")
def verify(parts: Parts, verified: Verify) -> Reverify:
    """Verify a model once more as `sie verify` does, in an engine of its own, beside what its references said.

    The families of sie-pytorch serve it, whose heads the seeded faults are in.
    """
    others = {name: family for name, family in parts.plugins.families.items() if not name.startswith("cpu")}
    plugins = replace(parts.plugins, families=others)

    def run(name: str, precision: str = "float32") -> Report:
        references = verified(name).references
        found = parts.catalog.resolve(name)
        resolved = replace(found, profile=replace(found.profile, compute_precision=precision))
        return compare(run_engine(parts.settings, plugins, resolved, parts.weights, ()), references, {})

    return run


@pytest.fixture(scope="session")
def client(server: Serving) -> Iterator[SIEClient]:
    """Our own client of it."""
    with SIEClient(server.url) as client:
        yield client


@pytest.fixture(scope="session")
def published_client(published_sdk: ClientEnvironment, server: Serving) -> Iterator[PublishedClient]:
    """The published client of it, in one process for all models."""
    with published_sdk.start("published_calls.py", server.url) as process:
        yield PublishedClient(process)
