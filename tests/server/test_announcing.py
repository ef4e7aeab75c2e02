"""What a server prints, read by who started it: what it says holds, and little else is said."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from sie_core.contracts import ModelInfo
from sie_core.logs import SLOW_MS
from sie_core.server.examples import announcement
from tests.conftest import MINILM, run_server

URL = "http://127.0.0.1:9"


def info(name: str, **fields: Any) -> ModelInfo:
    given = {"inputs": ("text",), "outputs": ("dense",), "dims": {}, "state": "available", "available": True}
    return ModelInfo(name, **{**given, "operations": ("encode", "score"), **fields})


def test_the_command_that_a_server_prints_works_and_a_load_takes_one_line(tmp_path: Path) -> None:
    with run_server(tmp_path, {"SIE_PLUGINS_BLOCKED": "fake", "SIE_MODEL_WAIT_S": "100"}) as server:
        printed = server.wait_for_log(r"(?s)SIE serves on .*/docs\n").group()
        (models,) = re.findall(r"^Models that are here: (\S+) \(all: sie models\)$", printed, re.MULTILINE)
        assert models == MINILM
        (command,) = re.findall(r"^curl .* \\\n.*$", printed, re.MULTILINE)
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=250, check=True)
        assert len(json.loads(done.stdout)["data"][0]["embedding"]) == 384
        (page,) = re.findall(r"(http\S+/docs)\n", printed)
        assert httpx.get(page, timeout=60).status_code == 200
        httpx.post(f"{server.url}/v1/embeddings", json={"model": "test/missing", "input": "x"}, timeout=60)
        # Of a load that takes long there are lines of its progress too.
        log = [
            line
            for line in server.log().splitlines()
            if re.match(r"\d{4}-", line) and "sie_core.cache.progress" not in line
        ]
        assert [line.split(maxsplit=2)[2].partition(":")[0] for line in log] == [
            "sie_core.server",
            "sie_core.engine.residency.lifecycle",
        ]
        assert re.search(rf"{MINILM} is loaded in \d+\.\d s by the family cpu: \w+ \S+, \d+ MB \[", log[1])


def test_those_come_first_that_answer_at_once_and_the_default_of_the_others() -> None:
    known = [
        *(info(f"org/{name}") for name in "abc"),
        info("org/default"),
        info("org/loaded", state="loaded"),
        info("org/elsewhere", available=False),
        info("org/broken", last_error={"code": "MODEL_LOAD_FAILED"}),
    ]
    told = announcement(URL, known, "org/default", needs_token=False)
    assert told.models == ("org/loaded", "org/default", "org/a")
    assert told.facts()["models"] == told.models
    assert told.example is not None
    assert '"model": "org/loaded"' in told.example


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "/v1/embeddings"),
        ({"outputs": ("score",), "operations": ("score",)}, "/v1/rerank"),
        ({"outputs": ("sparse",)}, "/v1/rerank"),
        ({"outputs": ("json",), "operations": ("extract",)}, None),
        ({"inputs": ("image",)}, None),
    ],
)
def test_a_command_asks_a_route_that_the_model_serves(fields: dict[str, Any], path: str | None) -> None:
    example = announcement(URL, [info("org/m", **fields)], "", needs_token=True).example
    if path is None:
        assert example is None
    else:
        assert example is not None
        assert example.startswith(f"curl {URL}{path} ")
        assert '-H "Authorization: Bearer $SIE_API_KEY"' in example


def test_a_server_without_weights_says_how_to_get_some() -> None:
    told = announcement(URL, [info("org/elsewhere", available=False)], "org/elsewhere", needs_token=False)
    assert (told.models, told.example) == ((), None)
    assert "sie serve org/name" in told.text()


def test_the_log_of_slow_requests_has_those_alone(tmp_path: Path) -> None:
    model = "sie-fake/dense"
    with run_server(tmp_path, {"SIE_PLUGINS": "fake", "SIE_ACCESS_LOG": "slow"}, ["--preload", model]) as server:
        asked_ms = [*[0] * 20, SLOW_MS]  # a busy machine makes some of the first slow, too
        for latency_ms in asked_ms:
            body = {"items": [{"text": "a"}], "params": {"options": {"latency_ms": latency_ms}}}
            assert httpx.post(f"{server.url}/v1/encode/{model}", json=body, timeout=60).status_code == 200
        server.wait_for_log(r" sie_core\.access: ")
        told_ms = re.findall(r" sie_core\.access: .*latency_ms=([\d.]+)\]", server.log())
        assert 1 <= len(told_ms) < len(asked_ms)
        assert min(map(float, told_ms)) >= SLOW_MS
