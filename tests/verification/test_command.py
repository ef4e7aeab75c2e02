"""`sie verify` as its user runs it: the installed command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from tests.verification.tiny import Shelf

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
Sie = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sie(tmp_path: Path, shelf: Shelf) -> Sie:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    own = {"HF_HOME": str(tmp_path), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}

    def run(*arguments: str, models: Path = shelf.models_dir) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("sie")), "verify", *arguments]
        environment = {**bare, **own, "SIE_MODELS_DIR": str(models)}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=110)

    return run


def test_real_weights_are_verified(sie: Sie) -> None:
    done = sie(MINILM)
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rest = done.stdout.splitlines()
    assert head == f"{MINILM}: pytorch on cpu in float32"
    assert any(line.startswith("  runner: ") for line in rest)
    assert [line.split()[0] for line in rest if line.endswith("  ok")] == ["dense", "dense", "dense", "score"]
    assert rest[-1].startswith("verified: the largest deviation is ")


def test_what_the_fallback_serves_is_said_to_be_no_comparison(sie: Sie, tmp_path: Path) -> None:
    words = st.WordEmbeddings(WhitespaceTokenizer(["", "fox", "dog"]), torch.randn(3, 8))
    model = SentenceTransformer(modules=[words, st.Pooling(8, "mean")], device="cpu")
    model.save_pretrained(str(tmp_path / "models/test/words"), create_model_card=False)
    done = sie("test/words", "--json", models=tmp_path / "models")
    assert done.returncode == 1
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
