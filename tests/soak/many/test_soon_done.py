"""Four clients of the SDK ask eight models, where one fits and where three do: they wait for loads and lose no time."""

from __future__ import annotations

import re
import threading
import time

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.conftest import run_server
from tests.soak.many.models import names
from tests.soak.many.serving import metric
from tests.soak.many.traffic import zipf

MODELS, CLIENTS, EXPONENT = 8, 4, 1.1
STAGES = ("fetch", "import", "load")


def load_seconds(url: str) -> float:
    """Return what a load takes, as a mean of each model's last one, without its waits."""
    rows = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    found = [re.match(r'sie_model_load_stage_seconds{model="([^"]+)",stage="(\w+)"} (\S+)', row) for row in rows]
    taken = [(each[1], float(each[3])) for each in found if each and each[2] in STAGES]
    return sum(seconds for _, seconds in taken) / len({model for model, _ in taken})


@pytest.mark.parametrize(("held", "requests", "most_s"), [(1, 400, None), (3, 200, 40.0)])
def test_clients_of_the_sdk_lose_no_time_beside_the_loads(catalog, long_version, tmp_path, held, requests, most_s):
    if not long_version:
        pytest.skip("takes minutes; `make soak` runs it")
    settings = {"SIE_MODELS_DIR": str(catalog.folder), "SIE_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    settings["SIE_ACCESS_LOG"] = "all"
    settings["SIE_MEMORY_LIMIT_BYTES"] = str(catalog.limit(held))
    asked = zipf(names()[:MODELS], requests, exponent=EXPONENT)
    lock, answered = threading.Lock(), []
    with run_server(tmp_path, settings) as server:

        def client() -> None:
            with SIEClient(server.url) as sie:
                while True:
                    with lock:
                        if not asked:
                            return
                        model = asked.pop()
                    answer = sie.encode(model, {"text": f"text {len(answered)}"})
                    assert np.isfinite(answer["dense"]).all()
                    answered.append(model)

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall_s = time.monotonic() - started
        loads, each_s = metric(server.url, "sie_model_loads_total"), load_seconds(server.url)
        refused = len(re.findall(r"POST \S+ 503", server.log()))
    print(
        f"{held} of {MODELS} models fit, {requests} requests of {CLIENTS} clients: {wall_s:.1f} s, "
        f"{loads:.0f} loads of {each_s:.2f} s, {wall_s / (loads * each_s):.2f} times their time; "
        f"told to come back {refused} times"
    )
    assert len(answered) == requests
    assert wall_s <= (2 * loads * each_s if most_s is None else most_s)
