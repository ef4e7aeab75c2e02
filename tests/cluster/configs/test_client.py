"""The config service is asked within bounds, and nobody else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sie_cluster.configs import client as client_module
from sie_cluster.configs.client import MOST_EPOCH_BYTES, ConfigClient
from sie_cluster.programs.asking import Away

from tests.cluster.configs.conftest import settings_of
from tests.cluster.configs.service import TOKEN, SmallService

EPOCH = "/v1/configs/epoch"


@pytest.fixture
async def client(url: str) -> AsyncIterator[ConfigClient]:
    client = ConfigClient(settings_of(url))
    yield client
    await client.close()


async def test_it_answers_with_the_read_token(service: SmallService, client: ConfigClient) -> None:
    assert (await client.epoch()).epoch == 5
    assert await client.export() == service.export()


async def test_a_proxy_of_the_environment_is_not_used(
    service: SmallService, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    client = ConfigClient(settings_of(url))
    assert (await client.epoch()).epoch == 5
    await client.close()


async def test_a_redirect_is_not_followed(service: SmallService, client: ConfigClient) -> None:
    service.answers[EPOCH] = (302, b"", {"Location": "/elsewhere"})
    with pytest.raises(Away, match="answered 302"):
        await client.epoch()
    assert service.asked == [EPOCH]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, b"[]", {}), "something else than an epoch"),
        ((200, b'{"epoch": -1}', {}), "something else than an epoch"),
        ((200, b" " * (MOST_EPOCH_BYTES + 1), {}), f"more than {MOST_EPOCH_BYTES} bytes"),
        ((200, b"", {"Content-Length": "10"}), "cannot be reached"),
        ((401, b"", {}), "SIE_CONFIG_READ_TOKEN"),
        ((503, b"", {}), "answered 503"),
        ((500, b"", {}), "answered 500"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_told_without_the_token(
    service: SmallService, client: ConfigClient, answer: tuple[int, bytes, dict[str, str]], told: str
) -> None:
    service.answers[EPOCH] = answer
    with pytest.raises(Away, match=told) as away:
        await client.epoch()
    assert TOKEN not in str(away.value)


async def test_a_service_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "EPOCH_S", 0.05)
    server = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = ConfigClient(settings_of(f"http://127.0.0.1:{port}"))
    with pytest.raises(Away, match="did not answer within"):
        await client.epoch()
    await client.close()
    server.close()
