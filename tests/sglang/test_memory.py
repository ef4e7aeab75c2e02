"""Several models on a device that holds two: an engine ends before the next one takes its memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sie_sdk import SIEClient

from tests.conftest import run_server
from tests.sglang.conftest import write_python
from tests.sglang.siege import BOUND_S, CONFIG

MIB = 1 << 20
WEIGHTS_BYTES = 256 * MIB
LIMIT_BYTES = 700 * MIB
NAMES = ("test/one", "test/two", "test/three")
ASKED = (0, 1, 0, 2, 0, 2, 1, 1, 0)
IDEAL_LOADS = 4
"""Of `ASKED`, by one who knows what comes and keeps two: one, two, three in place of two, two in place of three."""


def test_the_longest_unused_engine_ends_before_the_next_takes_its_memory(
    embedders: Path, tmp_path: Path, orders: Path
) -> None:
    folder = tmp_path / "server" / "models"
    folder.mkdir(parents=True)
    for place, name in enumerate(NAMES):
        weights = Path(shutil.copytree(embedders / "test" / "qwen3", tmp_path / f"weights {place}"))
        save_file({"filler": np.zeros(WEIGHTS_BYTES // 4, np.float32)}, weights / "filler.safetensors")
        (folder / f"{place}.yaml").write_text(CONFIG.format(name=name, folder=weights))
    (orders / "start-bytes").write_text(str(WEIGHTS_BYTES))
    env = {
        "SIE_SGLANG_PYTHON": str(write_python(tmp_path, orders, plain=True)),
        "SIE_MEMORY_LIMIT_BYTES": str(LIMIT_BYTES),
    }
    with run_server(tmp_path / "server", env) as server, SIEClient(server.url, timeout_s=BOUND_S) as client:
        found = [client.encode(NAMES[place], {"text": "one"}, wait_for_capacity=True)["dense"] for place in ASKED]
    starts = [json.loads(line) for line in (orders / "starts").read_text().splitlines()]
    assert all(np.array_equal(each, found[0]) for each in found)
    assert max(start["others_bytes"] for start in starts) + WEIGHTS_BYTES <= LIMIT_BYTES, "no overlap of old and new"
    assert any(start["others_bytes"] for start in starts), "two at once"
    assert len(starts) <= 1.5 * IDEAL_LOADS
