"""What runs inside an image: its first process, its health, and what is done to what was installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sie_bundle.images.inside import bytecode, pruning, records, sbom

INSIDE = Path(bytecode.__file__).parent
SITE = "opt/sie/lib/python3.11/site-packages"


def first_process(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", INSIDE / "init.py", *command], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_first_process_ends_as_its_server_does(code: str, status: int) -> None:
    with first_process(sys.executable, "-c", code) as process:
        assert process.wait(30) == status


def test_the_first_process_passes_signals_on_and_waits_for_the_end() -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"
    with first_process(sys.executable, "-c", code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7


def test_a_server_that_cannot_be_started_is_told() -> None:
    with first_process("/nowhere/sie") as process:
        assert process.wait(30) == 127


def test_health_of_a_port_where_nobody_listens_is_bad() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", INSIDE / "health.py", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("port 1: ")


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """A layer with a distribution `torch` in it."""
    layer = tmp_path / "layers" / "large"
    site = layer / SITE
    files = {
        "torch/__init__.py": "import torch.nn\n",
        "torch/broken.py": "print 'for another Python'\n",
        "torch/include/ATen.h": "",
        "torch/test/test_api.py": "",
        "torch/bin/torch_shm_manager": "",
        "torch/bin/protoc": "",
        "torch/testing/__init__.py": "",
        "numpy/linalg/tests/test_linalg.py": "",
        "triton/backends/nvidia/cuda.h": "",
    }
    info = "torch-2.13.0.dist-info"
    metadata = "Metadata-Version: 2.4\nName: Torch\nVersion: 2.13.0+cpu\nLicense-Expression: BSD-3-Clause\n"
    names = [*files, f"{info}/METADATA", f"{info}/RECORD"]
    for name, text in {**files, f"{info}/METADATA": metadata, f"{info}/RECORD": "\n".join(names)}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return layer


def test_tests_headers_and_their_programs_go_and_what_is_used_stays(layer: Path) -> None:
    pruning.prune(layer)
    left = {file.relative_to(layer / SITE).as_posix() for file in (layer / SITE).rglob("*") if file.is_file()}
    assert {name for name in left if "dist-info" not in name} == {
        "torch/__init__.py",
        "torch/broken.py",
        "torch/bin/torch_shm_manager",
        "torch/testing/__init__.py",
        "triton/backends/nvidia/cuda.h",
    }


def test_bytecode_names_the_place_in_the_image_and_is_the_same_each_time(layer: Path) -> None:
    found = []
    for _ in range(2):
        bytecode.compile_layers([layer])
        file = layer / SITE / "torch/__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
        found.append(file.read_bytes())
        file.unlink()
    assert found[0] == found[1]
    assert b"/" + SITE.encode() + b"/torch/__init__.py" in found[0]
    assert str(layer).encode() not in found[0]


def test_records_list_what_is_there_with_hash_and_size(layer: Path) -> None:
    pruning.prune(layer)
    bytecode.compile_layers([layer])
    records.update_records(layer)
    site = layer / SITE
    with (site / "torch-2.13.0.dist-info/RECORD").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert "torch/include/ATen.h" not in {row[0] for row in rows}
    assert f"torch/__pycache__/__init__.{sys.implementation.cache_tag}.pyc" in {row[0] for row in rows}
    for name, digest, size in rows[:-1]:
        content = (site / name).read_bytes()
        told = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={told}", str(len(content)))


def test_the_bill_of_materials_names_distributions_with_the_hash_of_their_wheel(layer: Path, tmp_path: Path) -> None:
    lock = '[[packages]]\nname = "torch"\nversion = "2.13.0+cpu"\n[[packages.wheels]]\nhashes = {sha256 = "ab"}\n'
    (tmp_path / "pylock.cpu.toml").write_text(lock)
    plan = {"epoch": 1577836800, "name": "sie-server", "version": "1.0.0-cpu-acme"}
    written = []
    for name in ("first", "second"):
        sbom.write_sbom(records.site_packages(tmp_path / "layers"), tmp_path / name, plan)
        written.append((tmp_path / name).read_bytes())
    bill = json.loads(written[0])
    torch = next(each for each in bill["components"] if each["name"] == "torch")
    assert written[0] == written[1]
    assert (bill["bomFormat"], bill["metadata"]["timestamp"]) == ("CycloneDX", "2020-01-01T00:00:00Z")
    assert torch["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    assert torch["hashes"] == [{"alg": "SHA-256", "content": "ab"}]
    assert Path("/var/lib/dpkg/status").exists() == any("pkg:deb" in each["purl"] for each in bill["components"])
