"""curl against a server and a cluster, as the README shows it."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from sie_sdk import SIEClient

MODEL = "sie-fake/embedder"
pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here"),
]


def curl(*arguments: str) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body."""
    command = ["curl", "-sS", "--max-time", "60", "-D", "/dev/stderr", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
    status, *lines = done.stderr.strip().splitlines()
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    return int(status.split()[1]), headers, done.stdout


def test_curl_encodes_and_speaks_openai(served_fakes: str) -> None:
    body = json.dumps({"items": [{"text": "a small model"}]})
    status, headers, text = curl(f"{served_fakes}/v1/encode/{MODEL}", "--json", body)
    assert (status, headers["content-type"]) == (200, "application/json")
    with SIEClient(served_fakes) as client:
        right = client.encode(MODEL, "a small model")["dense"]
    assert np.float32(json.loads(text)["items"][0]["dense"]["values"]).tobytes() == right.tobytes()
    asked = json.dumps({"model": MODEL, "input": "a small model"})
    status, _, text = curl(f"{served_fakes}/v1/embeddings", "--json", asked)
    assert status == 200
    np.testing.assert_array_equal(np.float32(json.loads(text)["data"][0]["embedding"]), right)


def test_curl_is_told_what_is_wrong_and_what_is_served(served_fakes: str) -> None:
    status, _, text = curl(f"{served_fakes}/v1/encode/no/such", "--json", '{"items": [{"text": "a"}]}')
    assert (status, json.loads(text)["error"]["code"]) == (404, "MODEL_NOT_FOUND")
    status, _, text = curl(f"{served_fakes}/v1/models")
    assert status == 200
    assert MODEL in {model["id"] for model in json.loads(text)["data"]}
    assert curl(f"{served_fakes}/readyz")[0] == 200
