"""What the pages on troubleshooting and on upgrades name is there: errors, classes, messages, metrics, options."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import get_args

import httpx
import pytest
from click.testing import CliRunner
from sie_sdk.errors import ERRORS

from sie_core.cli import main
from sie_core.contracts.errors import LoadFailure
from tests.docs.test_generated import ROOT

PAGE = (ROOT / "docs/use/errors.md").read_text(encoding="utf-8").partition("## From what you see")[2]
UPGRADES = sorted((ROOT / "docs/operate/upgrade-from").glob("*.md"))
STATUS = re.compile(r"\b([45]\d\d) `([A-Z_]+)`")


def test_every_error_of_the_page_is_in_the_table_with_its_status() -> None:
    named = STATUS.findall(PAGE)
    assert len(named) > 10
    assert [(status, code) for status, code in named if ERRORS[code].status != int(status)] == []
    others = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", PAGE)) - {code for _, code in named}
    assert {name for name in others if not name.startswith(("SIE_", "HF_"))} <= {
        *get_args(LoadFailure), *ERRORS, "OMP_NUM_THREADS", "HTTPS_PROXY",
    }  # fmt: skip


def test_the_refusals_of_a_start_are_those_of_the_page(process_state: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = CliRunner().invoke(main, ["serve", "--port", str(port)]).output
    assert "another process has that port" in told
    (said,) = re.findall(r"`(Cannot listen on 127.0.0.1:8080: [^`]+)`", PAGE)
    assert said.replace("8080", str(port)) in told


def test_the_wrong_address_answers_what_the_page_says(fake_server: str) -> None:
    assert "404 `NOT_FOUND`" in PAGE
    reply = httpx.post(f"{fake_server}/v1/embedings", json={"model": "sie-fake/embedder", "input": "a"}, timeout=60)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "NOT_FOUND")
    assert "/v1/embeddings" in reply.json()["error"]["message"]


@pytest.mark.parametrize("page", UPGRADES, ids=lambda page: page.stem)
def test_the_options_and_metrics_of_an_upgrade_are_there(page: Path, fake_server: str) -> None:
    rows = [line.split(" | ", 1)[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    ours = "\n".join(rows)
    offered = CliRunner().invoke(main, ["serve", "--help"]).output
    assert [
        name for name in re.findall(r"(?<=`)--[a-z-]+|sie serve (?:\S+ )*(--[a-z-]+)", ours) if name not in offered
    ] == []
    metrics = httpx.get(f"{fake_server}/metrics", timeout=60).text
    names = re.findall(r"`(sie_[a-z_]+)`", "\n".join(row for row in rows if not row.startswith("`sie_id")))
    assert names
    assert [name for name in names if f"# HELP {name} " not in metrics and f"# HELP {name}_total " not in metrics] == []
