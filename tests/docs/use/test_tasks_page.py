"""The twelve tasks: each line of the page does what it is for, or is read as the command would read it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml

from sie_core.cli import main
from sie_core.cli.serve import command as serve
from sie_core.settings import core_variables, load_settings
from tests.cache.fake_hub import COMMIT, FakeHub, files_of, run_hub
from tests.conftest import Server, run_server
from tests.docs.following import ADDRESS, COMMAND_S
from tests.docs.test_generated import ROOT
from tests.pytorch.models import write_checkpoint
from tests.pytorch.pairs.support import write_classifier
from tests.pytorch.test_lora import write_lora

PAGE = (ROOT / "docs/use/tasks.md").read_text(encoding="utf-8")
TASKS = dict(re.findall(r"^\| ([^|]+?) \| `([^`]+)` \|$", PAGE, re.MULTILINE))
SMALL, RERANKER, LORA = "BAAI/bge-small-en-v1.5", "BAAI/bge-reranker-base", "acme/legal-lora"


def task(words: str) -> str:
    (line,) = [line for name, line in TASKS.items() if words in name]
    return line


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    """A Hub that has small models under the names of the page."""
    folder = tmp_path_factory.mktemp("repositories")
    small = write_checkpoint("bert", folder / "small")
    reranker = write_classifier("xlm-roberta", folder / "reranker")
    lora = write_lora(small, folder / "lora", 1)
    with run_hub() as served:
        served.files = {SMALL: files_of(small), RERANKER: files_of(reranker), LORA: files_of(lora)}
        yield served


def environment(hub: FakeHub, home: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home / "hf"), "SIE_RUNNER": "priority", "HOME": str(home)}


def typed(line: str, hub: FakeHub, home: Path) -> str:
    """Run a line in a shell as its reader does; return what it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    env = own | environment(hub, home)
    run = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, timeout=COMMAND_S, cwd=home, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def parts(line: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the arguments of a line that ends in `sie serve …`."""
    words = shlex.split(line)
    at = words.index("serve")
    assert words[at - 1] == "sie"
    return dict(word.split("=", 1) for word in words[: at - 1]), words[at + 1 :]


@contextmanager
def serving(line: str, hub: FakeHub, home: Path) -> Iterator[Server]:
    variables, arguments = parts(line)
    env = {"SIE_HF_FALLBACK": None, "SIE_MODELS_DIR": None, **environment(hub, home), **variables}
    with run_server(home, env, arguments) as server:
        yield server


def test_the_page_has_the_twelve_tasks_of_one_line_each() -> None:
    assert len(TASKS) == 12


def test_two_models_are_served_and_asked_for_a_ranking_an_adapter_and_the_metrics(hub: FakeHub, tmp_path: Path) -> None:
    with serving(task("two models"), hub, tmp_path) as server:
        ranked, adapted, metrics = (
            typed(task(name).replace(ADDRESS, server.url), hub, tmp_path) for name in ("rerank", "LoRA", "metrics")
        )
    assert {result["index"] for result in json.loads(ranked)["results"]} == {0, 1}
    assert json.loads(adapted)["lora"] == LORA
    assert f'sie_requests_total{{model="{RERANKER}",operation="score",outcome="ok"}} 1.0' in metrics


def test_a_model_is_pulled_before_it_is_served_without_a_network(hub: FakeHub, tmp_path: Path) -> None:
    pull, _, _ = task("without a network").partition(" && ")
    assert SMALL in typed(pull, hub, tmp_path)
    assert list((tmp_path / "hf/hub").glob("models--*/snapshots/*/model.safetensors"))


def test_a_pinned_model_is_the_commit_of_today(hub: FakeHub, tmp_path: Path) -> None:
    typed(task("revision"), hub, tmp_path)
    (written,) = (tmp_path / "models").glob("*.yaml")
    assert yaml.safe_load(written.read_text())["hf_revision"] == COMMIT


@pytest.mark.parametrize("name", [name for name, line in TASKS.items() if "sie serve" in line])
def test_what_serves_is_read_by_the_command_and_its_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, arguments = parts(TASKS[name].rpartition(" && ")[2])
    serve.make_context("serve", arguments, parent=click.Context(main, **main.context_settings))
    for variable, value in variables.items():
        assert variable in core_variables() or variable == "HF_HUB_OFFLINE"
        monkeypatch.setenv(variable, value)
    load_settings()


def test_the_image_of_the_docker_line_is_the_one_that_is_built() -> None:
    from sie_core import __version__

    assert f"sie-server:{__version__}-cpu-default" in task("Docker")
    assert "default" in {folder.name for folder in (ROOT / "bundles").iterdir()}
