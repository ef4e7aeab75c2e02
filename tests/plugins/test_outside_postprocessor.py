"""A postprocessor written outside the tree takes the place of a built-in one, without a line of the core."""

from __future__ import annotations

import sys

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.plugins.outside import environment, run, server

BUILT_IN = "sie_core.defaults.postprocessors"
CONFIG = """\
sie_id: test/late
package_backed: true
tasks: { encode: { multivector: { dim: 8 } } }
profiles:
  default: { adapter_path: fake }
  mean:
    adapter_path: fake
    adapter_options:
      loadtime: { muvera_config: { scale: 3 } }
      runtime: { muvera: true, output_types: [dense] }
"""


@pytest.fixture(scope="module")
def url(install, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "models").mkdir()
    (folder / "models/late.yaml").write_text(CONFIG)
    lists = {"SIE_PLUGINS": "fake,mean-of-tokens", "SIE_PLUGINS_BLOCKED": BUILT_IN}
    variables = environment(install("outside_postprocessor"), SIE_MODELS_DIR=str(folder / "models"), **lists)
    with server(["--preload", "test/late,test/late:mean"], folder, variables) as address:
        yield address


def test_it_makes_the_dense_vector_with_the_parameters_of_the_profile(url):
    with SIEClient(url) as client:
        tokens = client.encode("test/late", "a red fox", output_types=["multivector"])["multivector"]
        dense = client.encode("test/late:mean", "a red fox")["dense"]
    assert dense == pytest.approx(3 * tokens.mean(axis=0), abs=1e-6)
    assert np.any(dense)


def test_the_models_list_has_its_dims(url):
    model = httpx.get(f"{url}/v1/models/test/late:mean", timeout=60).json()
    assert (model["outputs"], model["dims"]) == (["dense"], {"dense": 8})
    assert model["notes"]["muvera"] == "makes dense of 8 dimensions of multivector"


def test_beside_the_built_in_one_it_is_broken_and_the_way_out_is_named(sie, install):
    done = sie("plugins", site=install("outside_postprocessor"), SIE_PLUGINS="fake,mean-of-tokens")
    assert done.returncode == 1
    assert "registers the postprocessor 'muvera', and so does plugin" in done.stdout
    assert f"SIE_PLUGINS_BLOCKED={BUILT_IN}" in done.stdout


def test_the_kit_finds_it_conforming(install, tmp_path):
    (tmp_path / "test_it.py").write_text(
        'from sie_kit import conformance\n\ntest_postprocessor = conformance("sie-test-outside-postprocessor")\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    variables = environment(install("outside_postprocessor"), SIE_PLUGINS_BLOCKED=BUILT_IN)
    done = run(command, tmp_path, variables)
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
