"""The snippets of the SDK's README run as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "sdk/python/README.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
MULTI_VECTOR_MODEL = "colbert-ir/colbertv2.0"
"""Its weights are not here; the fake answers in its place."""
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(
    ("snippet", "printed"),
    list(
        zip(
            SNIPPETS,
            [
                r"\(384,\) [\d.]+\na int8\n\[.*'sentence-transformers/all-MiniLM-L6-v2'.*\]\n256\n",
                r"(\[( *-?0\.\d+){3} *\]\n){2}",
                r"\(500, 384\) \[\]\n\[\[0\. +1\. *\]\n \[0\.6\d+ +0\.6\d+ *\]\]\n",
                r"{'item_id': 'fox', 'score': 1\.0, 'rank': 0}\nperson Ada\nplace London\n\(16,\)\n",
                r"a small model behind a search\n",
            ],
            strict=True,
        )
    ),
)
def test_a_snippet_prints_what_it_promises(minilm_server, snippet, printed):
    assert ADDRESS in snippet
    here = snippet.replace(ADDRESS, minilm_server).replace(MULTI_VECTOR_MODEL, "sie-fake/embedder")
    command = [sys.executable, "-c", here]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(printed, run.stdout), run.stdout
