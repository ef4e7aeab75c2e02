"""With transformers 4, 5 and none, and without torch, sie-text gives the same ids, prompts, cuts and vectors."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pytorch.tokenizers import TEMPLATES, write_tokenizer
from tests.text.environments import TRANSFORMERS, text_environment
from tests.text.tables import write_model2vec

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("in_environment.py")


def answer(name: str, folder: Path) -> dict[str, Any]:
    paths = (ROOT, ROOT / "sdk/python", ROOT / "plugins/sie-text")
    done = subprocess.run(
        [str(text_environment(name)), str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_environment_gives_the_same_ids_prompts_and_cuts(tmp_path: Path) -> None:
    write_model2vec(tmp_path / "static")
    for style in TEMPLATES:
        write_tokenizer(style, tmp_path / "tokenizers" / style, model_max_length=64)
    answers = {name: answer(name, tmp_path) for name in TRANSFORMERS}
    for made in answers.values():
        assert made["early"] == made["heavy"] == []
        assert not made["torch"]
        assert made["static"] == answers["none"]["static"]
        assert made["sequences"] == answers["none"]["sequences"]
    assert all(len(sequences) == 8 for sequences in answers["none"]["sequences"].values())
    assert any(cut for sequences in answers["none"]["sequences"].values() for _, _, cut in sequences)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tokenizer_that_has_to_be_converted_names_the_package(tmp_path: Path) -> None:
    write_model2vec(tmp_path / "static")
    folder = tmp_path / "tokenizers/words"
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "a")))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    told = answer("none", tmp_path)["sequences"]["words"]
    assert told.startswith("DEPENDENCY: ")
    assert "the package transformers" in told
    assert isinstance(answer("5", tmp_path)["sequences"]["words"], list)
