"""The sockets and the capacity of a server and of a cluster, as the published client and our own read them."""

import asyncio

import pytest
from sie_sdk import ProvisioningError, RequestError, SIEAsyncClient, SIEClient, SIEConnectionError

MODEL = "sie-fake/embedder"

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


@pytest.mark.parametrize("mode", ["auto", "worker"])
def test_the_published_client_watches_the_server(published_sdk, fake_server, mode):
    first, second = published_sdk.run("published_watch.py", url=fake_server, mode=mode)
    assert second["timestamp"] > first["timestamp"]
    assert first["ready"] is True
    assert MODEL in first["loaded_models"]
    (model,) = (each for each in first["models"] if each["name"] == MODEL)
    assert (model["state"], model["device"]) == ("loaded", "cpu")
    assert model["config"]["dims"]["dense"] == 32


@pytest.mark.parametrize("mode", ["auto", "cluster"])
def test_the_published_client_watches_a_cluster(published_sdk, cluster_server, mode):
    first, second = published_sdk.run("published_watch.py", url=cluster_server, mode=mode)
    assert second["timestamp"] > first["timestamp"]
    assert first["cluster"]["worker_count"] == len(first["workers"]) > 0


def test_the_published_client_is_told_capacity_by_a_gateway_alone(published_sdk, cluster_server, fake_server):
    told = published_sdk.run("published_capacity.py", url=cluster_server, gpu="cpu", model=MODEL)
    assert told["every"]["worker_count"] == told["waited"]["worker_count"] > 0
    assert told["dims"] == {"cpu": 32}
    alone = published_sdk.run("published_capacity.py", url=fake_server, gpu="cpu", model=MODEL)
    assert alone == {"refused": "not_gateway"}


@pytest.mark.parametrize(
    ("of", "mode"),
    [("fake_server", "auto"), ("fake_server", "worker"), ("cluster_server", "auto"), ("front_ends_server", "auto")],
)
def test_both_shells_watch_and_leave_when_they_like(request, of, mode):
    served, key = request.getfixturevalue(of), "timestamp"
    url = getattr(served, "url", served)
    with SIEClient(url) as client:
        watching = client.watch(mode=mode)
        first, second = next(watching), next(watching)
        watching.close()
        assert second[key] > first[key]
        assert ("cluster" in first) == (of == "cluster_server")
        assert client.health()["status"]

    async def watch():
        async with SIEAsyncClient(url) as client:
            return await anext(client.watch(mode=mode))

    assert asyncio.run(watch()).keys() == first.keys()


def test_what_is_not_there_to_be_watched_is_an_error(fake_server):
    with SIEClient(fake_server) as client, pytest.raises(RequestError):
        next(client.watch(mode="cluster"))
    with SIEClient("http://127.0.0.1:9") as client, pytest.raises(SIEConnectionError):
        next(client.watch(mode="worker"))


def test_our_client_is_told_the_capacity_of_a_cluster(cluster_server, fake_server):
    with SIEClient(cluster_server) as client:
        told = client.get_capacity(gpu="CPU")
        assert told["worker_count"] == len(told["workers"]) > 0
        for worker in told["workers"]:
            assert client.encode(MODEL, {"text": "a"}, gpu=worker["gpu"])["dense"].shape == (32,)
        waited = client.wait_for_capacity("cpu", timeout_s=60)
        assert waited["worker_count"] == told["worker_count"]
        with pytest.raises(ProvisioningError, match="h100"):
            client.wait_for_capacity("h100", timeout_s=0)
    with SIEClient(fake_server) as client, pytest.raises(RequestError) as refused:
        client.get_capacity()
    assert refused.value.code == "not_gateway"
