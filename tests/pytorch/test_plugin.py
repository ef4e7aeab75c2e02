"""What the plugin registers, whether it conforms, and that registering costs no model library."""

import hashlib
import subprocess
import sys
from importlib.metadata import version

import pytest
from sie_kit import conformance
from sie_pytorch.devices.probes import CudaProbe, MpsProbe
from sie_text.plugin import MINILM

from sie_core.catalog import build_catalog
from sie_core.contracts import Device
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from tests.pytorch.bare import minilm

# Tests of the families hold their models to the kit one by one.
test_sie_pytorch_conforms = conformance("sie-pytorch")


def test_the_plugin_is_active_and_registers_both_families() -> None:
    plugins = discover(Settings(strict_plugins=True), BUILTINS)
    assert {"pytorch", "sentence-transformers"} <= set(plugins.families)
    assert plugins.families["sentence-transformers"].devices == frozenset({"cpu", "cuda", "mps"})
    assert {"packed"} <= {runner.name for runner in plugins.runners}
    assert {"cuda", "mps"} <= {probe.kind for probe in plugins.device_probes}


def test_the_embedded_default_is_in_the_catalog() -> None:
    settings = Settings()
    catalog = build_catalog(settings, discover(settings, BUILTINS))
    config = catalog.resolve("sentence-transformers/all-MiniLM-L6-v2").config
    assert config.hf_id == MINILM.repo_id
    assert config.max_sequence_length == 256


def test_the_hashes_are_those_of_the_published_package() -> None:
    assert version(MINILM.distribution) == "0.1.0"
    assert minilm().parts[-2:] == (MINILM.module, MINILM.folder)
    for name, digest in MINILM.sha256:
        content = (minilm() / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("sie_pytorch.plugin", {"torch", "transformers", "tokenizers", "safetensors", "sentence_transformers"}),
        ("sie_pytorch.heads.composed.encoder", {"transformers", "sentence_transformers"}),
    ],
)
def test_a_module_imports_no_more_than_it_needs(module: str, absent: set[str]) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert module in done.stdout.split()
    assert not absent & set(done.stdout.split())


def test_serving_a_packed_model_imports_no_sentence_transformers() -> None:
    code = (
        "import sys\n"
        "from tests.pytorch.bare import load_minilm\n"
        "assert load_minilm().facts.dims == {'dense': 384}\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert "transformers" in done.stdout.split()
    assert "sentence_transformers" not in done.stdout.split()


def test_a_probe_measures_the_devices_it_finds_and_never_raises() -> None:
    for probe in (CudaProbe(), MpsProbe()):
        for device in probe.devices():
            assert device.kind == probe.kind
            memory = probe.memory(device)
            assert 0 <= memory.used <= memory.total
    assert CudaProbe().priority > MpsProbe().priority > 0
    assert str(Device("cuda", 1)) == "cuda:1"
