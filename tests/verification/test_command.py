"""`sie verify` as its user runs it: in a process of its own, and once in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from sie_core.cli import main
from tests.verification.tiny import Shelf

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
OWN = {"SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}
Sie = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sie(tmp_path: Path, shelf: Shelf) -> Sie:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    own = {**OWN, "HF_HOME": str(tmp_path), "SIE_MODELS_DIR": str(shelf.models_dir)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("sie")), "verify", *arguments]
        return subprocess.run(command, env={**bare, **own}, cwd=tmp_path, capture_output=True, text=True, timeout=280)

    return run


def test_real_weights_are_verified(sie: Sie) -> None:
    done = sie(MINILM)
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rest = done.stdout.splitlines()
    assert head == f"{MINILM}: cpu on cpu in float32"
    assert any(line.startswith("  runner: ") for line in rest)
    assert [line.split()[0] for line in rest if line.endswith("  ok")] == ["dense", "dense", "dense", "score"]
    assert rest[-1].startswith("verified: the largest deviation is ")


def test_what_the_fallback_serves_is_said_to_be_no_comparison(process_state: None, tmp_path: Path) -> None:
    words = st.WordEmbeddings(WhitespaceTokenizer(["", "fox", "dog"]), torch.randn(3, 8))
    model = SentenceTransformer(modules=[words, st.Pooling(8, "mean")], device="cpu")
    model.save_pretrained(str(tmp_path / "models/test/words"), create_model_card=False)
    environment = {**dict.fromkeys(name for name in os.environ if name.startswith("SIE_")), **OWN}
    environment |= {"SIE_MODELS_DIR": str(tmp_path / "models"), "SIE_LOCAL_CACHE": str(tmp_path / "cache")}
    done = CliRunner().invoke(main, ["verify", "test/words", "--json"], env=environment)
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert (report["verdict"], report["rows"]) == ("not verified", [])
    assert report["notes"]["runner"] == "sentence-transformers (fallback)"
    assert {each["output"] for each in report["unverified"]} == {"dense", "score"}
    assert all(
        "serves the model itself, through the fallback adapter" in each["reason"] for each in report["unverified"]
    )


def test_a_model_that_is_not_there_is_named(sie: Sie) -> None:
    done = sie("tiny/dense-brt")
    assert done.returncode == 1
    assert "tiny/dense-bert" in done.stderr
    assert "Traceback" not in done.stderr
