"""The sampler of the bench names what a process does, and a process that was not asked is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.bench.cluster.profiling import profile, variables

BUSY = """
import sys
from sie_sdk.wire import pack
sys.stdout.write("ready\\n")
sys.stdout.flush()
value = [{"a": [1.0] * 50}] * 50
while True:
    pack(value)
"""


def test_shares_of_a_busy_process_name_what_it_is_busy_with(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    environment = {**os.environ, **variables(folder)}
    busy = subprocess.Popen([sys.executable, "-P", "-c", BUSY], stdout=subprocess.PIPE, env=environment)
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"ready\n"
        process = psutil.Process(busy.pid)

        def until_used() -> None:
            begun = sum(process.cpu_times()[:2])
            while sum(process.cpu_times()[:2]) < begun + 0.2:
                pass

        shares = profile(folder, {"busy": [process]}, ("busy",), until_used)["busy"]
    finally:
        busy.kill()
        busy.wait()
        assert busy.stdout is not None
        busy.stdout.close()
    assert max(shares, key=lambda part: shares[part]) == "messages"
    assert abs(sum(shares.values()) - 1) < 1e-9
