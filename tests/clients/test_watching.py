"""`/ws/status` as the published client's `watch()` reads it."""

import pytest

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
