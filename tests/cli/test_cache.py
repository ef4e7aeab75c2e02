"""`sie cache` as its user runs it, against a server that plays the Hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sie_core.cache import DiskCache
from tests.cache.fake_hub import COMMIT, TENSORS, FakeHub, run_hub

Sie = Callable[..., "subprocess.CompletedProcess[str]"]
REFERENCE = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with run_hub() as served:
        yield served


@pytest.fixture
def sie(hub: FakeHub, tmp_path: Path) -> Sie:
    """Run `sie cache` with a cache and a Hub of the test's own."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    environ = {**bare, "HF_ENDPOINT": hub.url, "SIE_LOCAL_CACHE": str(tmp_path / "cache")}
    # The disk of the machine that tests may be nearly full: a pull would then remove what another has just pulled.
    environ["SIE_DISK_PRESSURE_THRESHOLD_PERCENT"] = "100"

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from sie_core.cli import main; main(prog_name='sie')", "cache", *arguments]
        return subprocess.run(
            command, env={**environ, **variables}, cwd=tmp_path, capture_output=True, text=True, timeout=250
        )

    return run


def repositories(sie: Sie) -> dict[str, dict[str, object]]:
    done = sie("--json")
    assert done.returncode == 0, done.stderr
    return {each["repository"]: each for each in json.loads(done.stdout)["repositories"]}


def test_a_repository_is_pulled_listed_verified_and_removed(sie: Sie, tmp_path: Path) -> None:
    done = sie("pull", "org/m")
    assert done.returncode == 0, done.stderr
    assert f"org/m: {tmp_path / 'cache'}" in done.stdout
    assert "org/m: 0.0 MB of 0.0 MB (100 %)" in done.stderr
    (found,) = repositories(sie).values()
    assert found["revisions"] == {COMMIT: "whole"}
    assert (found["in_use"], found["removable"]) == (False, True)
    assert "org/m" in sie("list").stdout
    assert sie("verify").stdout == f"org/m {COMMIT}: right\n"
    assert sie("prune", "org/m").stdout.startswith("removed org/m")
    assert repositories(sie) == {}


def test_a_model_is_pulled_with_the_lora_adapters_its_config_declares(sie: Sie, hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/lora"] = {"adapter_config.json": b"{}", "adapter_model.safetensors": TENSORS}
    (tmp_path / "models").mkdir()
    config = "sie_id: mine/m\nhf_id: org/m\nloras: { legal: { hf_id: org/lora } }\nprofiles: { default: {} }\n"
    (tmp_path / "models/m.yaml").write_text(config)
    done = sie("pull", "mine/m")
    assert done.returncode == 0, done.stderr
    assert set(repositories(sie)) == {"org/m", "org/lora"}


def test_a_gliner_is_pulled_with_the_tokenizer_of_its_base_encoder_and_found_right(
    sie: Sie, hub: FakeHub, tmp_path: Path
) -> None:
    hub.files["org/gliner"] = {
        "gliner_config.json": b'{"model_name": "org/base"}',
        "pytorch_model.bin": b"pickled",
    }
    hub.files["org/base"] = {"config.json": b"{}", "tokenizer_config.json": b"{}", "pytorch_model.bin": b"encoder"}
    done = sie("pull", "org/gliner")
    assert done.returncode == 1
    assert "sie models pin" in done.stderr
    (tmp_path / "models").mkdir()
    pin = "pickles: {pytorch_model.bin: {sha256: '" + hashlib.sha256(b"pickled").hexdigest() + "'}}"
    (tmp_path / "models/gliner.yaml").write_text(f"sie_id: org/gliner\nhf_id: org/gliner\n{pin}\n")
    done = sie("pull", "org/gliner")
    assert done.returncode == 0, done.stderr
    found = repositories(sie)
    assert set(found) == {"org/gliner", "org/base"}
    assert [each["revisions"] for each in found.values()] == [{COMMIT: "whole"}] * 2
    assert "org/base/resolve" in " ".join(hub.asked)
    assert not any("org/base" in each and "pytorch_model" in each for each in hub.asked)
    assert sie("verify").returncode == 0


def test_what_cannot_be_pulled_is_named_with_its_class_and_the_others_are_pulled(sie: Sie) -> None:
    done = sie("pull", "org/none", "org/m")
    assert done.returncode == 1
    assert "org/none: NOT_FOUND: " in done.stderr
    assert "not pulled: org/none" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(repositories(sie)) == {"org/m"}


def test_verify_names_a_damaged_file_and_a_pull_puts_it_right(sie: Sie, tmp_path: Path) -> None:
    sie("pull", "org/m")
    weights = tmp_path / "cache/models--org--m/snapshots" / COMMIT / "model.safetensors"
    weights.resolve().write_bytes(TENSORS[:-1] + b"\1")
    done = sie("verify", "org/m")
    assert done.returncode == 1
    assert "model.safetensors has the hash" in done.stdout
    assert "sie cache pull" in done.stderr
    assert sie("pull", "org/m").returncode == 0
    assert sie("verify").returncode == 0


def test_prune_removes_down_to_a_size_and_keeps_what_is_in_use(sie: Sie, hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/other"] = hub.files["org/m"]
    sie("pull", "org/m", "org/other")
    lease = DiskCache(tmp_path / "cache").use("org/m")
    assert repositories(sie)["org/m"]["in_use"]
    assert "removed org/other" in sie("prune", "--max-bytes", "0").stdout
    done = sie("prune", "org/m")
    assert done.returncode == 1
    assert "kept: org/m" in done.stderr
    assert lease is not None
    assert set(repositories(sie)) == {"org/m"}


def test_a_repository_that_is_not_there_is_said(sie: Sie) -> None:
    done = sie("prune", "org/none")
    assert done.returncode == 1
    assert "org/none; `sie cache` lists what is" in done.stderr


def test_a_cluster_cache_that_no_plugin_serves_stops_the_command_and_names_one(sie: Sie) -> None:
    done = sie("pull", "org/m", SIE_CLUSTER_CACHE="ftp://host/weights")
    assert done.returncode == 2
    assert "no installed plugin serves ftp://" in done.stderr
    assert "Install one that registers an object store for it" in done.stderr
    done = sie("pull", "org/m", SIE_CLUSTER_CACHE="weights")
    assert done.returncode == 2
    assert "SIE_CLUSTER_CACHE='weights'" in done.stderr
