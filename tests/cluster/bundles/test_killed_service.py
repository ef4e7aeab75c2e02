"""The config service of a whole cluster killed between any two steps of a write, which gateway and workers follow."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.cluster.bundles.conftest import Running, fake
from tests.config_service.crashes.processes import STEPS
from tests.config_service.crashes.test_killed_services import COUNTS
from tests.soak.faults.cluster import until

MODEL = "test/killed"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def removed(running: Running) -> Iterator[None]:
    """Leave the cluster without the model."""
    yield
    assert running.write("DELETE", f"/models/{MODEL}").status_code == 200


def answered(running: Running, key: str, dim: int) -> httpx.Response:
    """Send a write until the service that leads answers it."""
    replies: list[httpx.Response] = []

    def once() -> bool:
        try:
            reply = running.ask("PUT", f"/models/{MODEL}", key, yaml.safe_dump({**fake(dim), "sie_id": MODEL}))
        except httpx.TransportError:
            return False
        replies.append(reply)
        return reply.status_code != 503

    until(once, "the write is answered")
    return replies[-1]


def followed(running: Running, epoch: int) -> bool:
    """Whether service and gateway are at an epoch, with the same hashes."""
    try:
        told = running.ask("GET", "/epoch").json()
    except httpx.TransportError:
        return False
    gateway: dict[str, object] = running.client.get(f"{running.url}/v1/configs/epoch").json()
    return bool(told.get("epoch") == epoch and gateway == told)


@pytest.mark.parametrize(("number", "step"), list(enumerate(STEPS)))
def test_after_a_kill_in_any_step_service_gateway_and_workers_agree_and_a_repeated_key_is_answered_as_the_first_time(
    running: Running, number: int, step: str
) -> None:
    before = running.ask("GET", "/epoch").json()["epoch"]
    (running.folder / "killed-after").write_text(step)
    key, dim = f"killed after {step}", 8 + number
    with pytest.raises(httpx.TransportError):
        running.ask("PUT", f"/models/{MODEL}", key, yaml.safe_dump({**fake(dim), "sie_id": MODEL}))
    until(lambda: followed(running, before + (step in COUNTS)), "who starts next and the gateway agree")
    first = answered(running, key, dim)
    assert (first.status_code, first.json()["replaced"], first.json()["epoch"]) == (200, True, before + 1)
    assert answered(running, key, dim).json() == first.json()
    until(lambda: followed(running, before + 1), "the gateway follows")
    until(lambda: len(running.acked(MODEL)) == 1, "the worker follows")
    until(lambda: running.dims(MODEL) == dim, "the changed one is served")
    exported = {each["model_id"] for each in running.ask("GET", "/export").json()["models"]}
    listed = {each["model_id"] for each in running.client.get(f"{running.url}/v1/configs/models").json()["models"]}
    assert exported == {each for each in listed if ":" not in each}
