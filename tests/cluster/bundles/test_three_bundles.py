"""Three bundles with workers of their own behind one gateway, and configs that change while it answers."""

from __future__ import annotations

import threading

import httpx
import pytest
from sie_sdk import SIEClient

from tests.cluster.bundles.conftest import BOUND_S, ENTITIES, FAKE, M3, Running, fake, profiles
from tests.soak.faults.cluster import until

pytestmark = pytest.mark.timeout(300)


def test_each_model_is_served_by_the_workers_of_its_bundle(running: Running) -> None:
    with SIEClient(running.url) as client:
        several = client.encode(M3, {"text": "a text"}, output_types=["dense", "sparse", "multivector"])
        assert {"dense", "sparse", "multivector"} <= several.keys()
        assert client.extract(ENTITIES, {"text": "Ada met Bob."}, labels=["person"])["model"] == ENTITIES
        assert client.encode(FAKE, {"text": "a text"})["dense"].shape == (8,)
    expected = {"default": {M3}, "gliner": {ENTITIES}, "fake": {FAKE}}
    until(lambda: running.loaded() == expected, "every model at its bundle's worker")


def test_a_request_may_name_its_bundle_and_one_that_does_not_serve_it_is_refused(running: Running) -> None:
    assert running.dims(f"fake:/{FAKE}") == 8
    assert running.dims(f"gliner:/{FAKE}") == "BUNDLE_CONFLICT"


def test_a_model_of_no_bundle_is_refused_at_the_write(running: Running) -> None:
    reply = running.write(
        "POST", "/models", {"sie_id": "test/nobody", "hf_id": "test/nobody", "profiles": {"default": {}}}
    )
    assert reply.status_code == 422
    lacks = [each["message"].partition(":")[0] for each in reply.json()["error"]["details"]]
    assert lacks == ["default", "gliner", "fake"]
    assert running.dims("test/nobody") == "MODEL_NOT_FOUND"


def test_a_model_is_added_changed_and_removed_under_load_and_no_other_request_sees_it(running: Running) -> None:
    assert running.dims(FAKE) == 8
    ended, seen = threading.Event(), set()

    def load() -> None:
        with httpx.Client(timeout=BOUND_S) as client:
            while not ended.is_set():
                reply = client.post(f"{running.url}/v1/encode/{FAKE}", json={"items": [{"text": "load"}] * 40})
                seen.add((reply.status_code, len(reply.content) > 0 and len(reply.json().get("items", ()))))

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: bool(seen), "load")
        assert running.write("POST", "/models", fake(8)).status_code == 201
        until(lambda: running.dims("test/new") == 8, "it is served")
        until(lambda: len(running.acked("test/new")) == 1, "the worker has it")
        assert running.write("POST", "/models", fake(8) | {"profiles": profiles("default", "other")}).status_code == 201
        until(lambda: running.dims("test/new:other") == 8, "the profile is served")
        assert running.write("PUT", "/models/test/new", fake(4)).status_code == 200
        until(lambda: running.dims("test/new") == 4, "the changed one is served")
        assert running.write("DELETE", "/models/test/new").status_code == 200
        until(lambda: running.dims("test/new") == "MODEL_NOT_FOUND", "it is removed")
    finally:
        ended.set()
        for thread in threads:
            thread.join(BOUND_S)
    assert seen == {(200, 40)}


def test_a_bundle_that_is_added_reaches_the_gateway_while_everything_runs(running: Running) -> None:
    assert set(running.bundles()) == {"default", "gliner", "fake"}
    (running.folder / "bundles/more").mkdir()
    (running.folder / "bundles/more/bundle.yaml").write_text("{priority: 10, plugins: [fake]}")
    until(lambda: "more" in running.bundles(), "the bundle is told")
    # Nobody works for it here: a request for its models waits for a worker, and the other bundle still serves them.
    assert running.dims(f"fake:/{FAKE}") == 8
    (running.folder / "bundles/more/bundle.yaml").unlink()
    until(lambda: "more" not in running.bundles(), "the bundle is told no more")
    assert running.dims(FAKE) == 8
