"""The way to the broker: chosen by its URL's scheme, and its secrets are told to nobody."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from sie_core.cluster.broker import transport_maker
from sie_core.contracts import PluginError
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings, SettingsError

SECRET = "hunter2"


def test_without_a_url_the_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="SIE_NATS_URL is not set"):
        transport_maker(Settings(), discover(Settings(), BUILTINS))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"pigeon://me:{SECRET}@coop", "no installed plugin serves pigeon://"),
        (f"nats://me:{SECRET}@", "is no URL like nats://host:4222"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(url: str, told: str) -> None:
    settings = Settings(nats_url=SecretStr(url))
    with pytest.raises(PluginError, match=told) as refused:
        transport_maker(settings, discover(settings, BUILTINS))
    assert SECRET not in str(refused.value)


def test_settings_show_no_secret_and_give_the_transport_what_is_set() -> None:
    settings = Settings(nats_url=SecretStr(f"nats://me:{SECRET}@host"), nats_user="me", nats_password=SecretStr(SECRET))
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings.model_dump())
    assert settings.queue_options() == {"user": "me", "password": SECRET, "storage": "file", "replicas": "1"}
