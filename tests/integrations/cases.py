"""Runs the cases of a folder inside an environment of the frameworks they are of, against a live server."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

from tests.clients.conftest import ClientEnvironment

ROOT = Path(__file__).parents[2]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
WORDS = (
    "river bridge winter garden engine copper letter window market forest doctor ticket camera island shadow planet "
    "butter violin saddle rocket pepper candle mirror basket tunnel desert parrot hammer castle blanket pocket thunder "
    "ladder orange kitchen soldier library mountain elephant umbrella diamond whistle teacher airport history balloon"
)


def planted() -> dict[str, list[str]]:
    """A thousand documents of five words, and queries of four words of some of them."""
    rng = random.Random(7)
    documents = list(dict.fromkeys(" ".join(rng.sample(WORDS.split(), 5)) for _ in range(1000)))
    answers = rng.sample(documents, 25)
    queries = [" ".join(answer.split()[:4]) for answer in answers]
    return {"documents": documents, "answers": answers, "queries": queries}


def environment(**more: str) -> dict[str, str]:
    """The variables of a framework's process; it may keep what it compiles, which takes most of its start."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "PYTEST_", "PYTHON"))}
    paths = os.pathsep.join(str(ROOT / each) for each in ("sdk/python", "sdk/integrations"))
    return {**own, "PYTHONPATH": paths, "ANONYMIZED_TELEMETRY": "False", "HAYSTACK_TELEMETRY_ENABLED": "False", **more}


def run_cases(folder: Path, frameworks: ClientEnvironment, url: str, home: Path) -> None:
    """Run `*_cases.py` of a folder by the pytest of an environment."""
    command = [str(frameworks.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    options = ["-c", "/dev/null", "--rootdir", str(home), "--confcutdir", str(folder)]
    options += ["-o", "python_files=*_cases.py", "-o", "asyncio_mode=auto"]
    done = subprocess.run(
        [*command, *options, str(folder)],
        env=environment(URL=url, DENSE=MINILM, PLANTED=json.dumps(planted())),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
