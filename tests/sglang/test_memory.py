"""Several models on a device that holds two: an engine ends before the next one takes its memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx

from tests.conftest import run_server
from tests.sglang.conftest import write_python
from tests.sglang.siege import BOUND_S, CONFIG, HEADERS, served, vector

MIB = 1 << 20
WEIGHTS_BYTES = 256 * MIB
LIMIT_BYTES = 850 * MIB
"""The server takes some 80 MiB: two models fit below the pressure threshold of 85 %, and three do not."""
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
        write_filler(weights / "filler.safetensors")
        (folder / f"{place}.yaml").write_text(CONFIG.format(name=name, folder=weights))
    (orders / "start-bytes").write_text(str(WEIGHTS_BYTES))
    env = {
        "SIE_SGLANG_PYTHON": str(write_python(tmp_path, orders, plain=True)),
        "SIE_MEMORY_LIMIT_BYTES": str(LIMIT_BYTES),
    }
    with (
        run_server(tmp_path / "server", env) as server,
        httpx.Client(base_url=server.url, timeout=BOUND_S, headers=HEADERS) as client,
    ):
        found = [vector(served(client, NAMES[place], "one")) for place in ASKED]
    starts = [json.loads(line) for line in (orders / "starts").read_text().splitlines()]
    assert all(each == found[0] for each in found)
    assert max(start["others_bytes"] for start in starts) < 2 * WEIGHTS_BYTES, "no overlap of old and new"
    assert any(start["others_bytes"] for start in starts), "two at once"
    assert len(starts) <= 1.5 * IDEAL_LOADS


def write_filler(file: Path) -> None:
    """Write a tensor that takes no room on the disk."""
    tensor = {"dtype": "F32", "shape": [WEIGHTS_BYTES // 4], "data_offsets": [0, WEIGHTS_BYTES]}
    header = json.dumps({"filler": tensor}).encode()
    with file.open("wb") as written:
        written.write(len(header).to_bytes(8, "little") + header)
        written.truncate(8 + len(header) + WEIGHTS_BYTES)
