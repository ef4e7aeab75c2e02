"""A plugin outside the tree is checked by mypy as strictly as its author likes: sie-core ships its types."""

from __future__ import annotations

import sys

from tests.plugins.outside import environment, run
from tests.plugins.test_writing_a_plugin import blocks


def test_the_plugin_of_the_tutorial_passes_mypy_strict_without_a_word_of_configuration(tmp_path):
    for block in blocks():
        if block.file is not None and "/sie_vowels/" in block.file and block.language == "python":
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.body)

    done = run([sys.executable, "-m", "mypy", "--strict", "sie_vowels"], tmp_path / "sie-vowels", environment())

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Success: no issues found in 3 source files" in done.stdout
