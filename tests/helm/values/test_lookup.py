"""What Helm finds in the cluster: generated secrets are kept, and brokers do not lose what nobody has a copy of."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tests.helm.engine import Helm, RefusedError, one
from tests.helm.values.api_server import api_server

WITHOUT_TOKENS = {
    "admin-token", "config-read-token", "nats-gateway-password", "nats-worker-password", "nats-config-password",
    "nats-route-password",
}  # fmt: skip
KEPT = {key: b64encode(f"kept-{key}".encode()).decode() for key in WITHOUT_TOKENS}
THERE = {"sie-secrets": KEPT}


def secrets(helm: Helm, there: dict[str, dict[str, str]], values: dict[str, Any]) -> dict[str, str]:
    with api_server(there) as kubeconfig:
        data: dict[str, str] = one(helm.install(kubeconfig, values), "Secret", "sie-secrets")["data"]
    return data


def test_what_is_there_is_kept(helm: Helm) -> None:
    assert secrets(helm, THERE, {}) == KEPT


def test_what_is_not_there_is_made_once_and_differs_each_time(helm: Helm) -> None:
    first, second = (secrets(helm, {}, {}) for _ in range(2))
    assert set(first) == set(second) == WITHOUT_TOKENS
    assert all(first[key] != second[key] for key in first)


def test_what_a_later_release_needs_is_added(helm: Helm) -> None:
    data = secrets(helm, THERE, {"auth": {"mode": "token"}})
    assert {key: data[key] for key in KEPT} == KEPT
    assert set(data) - set(KEPT) == {"auth-token", "pool-token"}


def test_a_token_that_is_given_wins(helm: Helm) -> None:
    data = secrets(helm, THERE, {"auth": {"mode": "token", "token": "0123456789abcdef"}})
    assert data["auth-token"] == b64encode(b"0123456789abcdef").decode()


def test_a_secret_of_the_operators_is_left_alone(helm: Helm) -> None:
    with api_server(THERE) as kubeconfig:
        found = helm.install(kubeconfig, {"secrets": {"existingSecret": "mine"}})
    assert not [each for each in found if each["kind"] == "Secret"]


def test_custom_resources_without_their_definitions_stop_the_install(helm: Helm) -> None:
    with api_server({}) as kubeconfig, pytest.raises(RefusedError, match="ServiceMonitor"):
        helm.install(kubeconfig, {"serviceMonitor": {"enabled": True}})


BUCKET = {"config": {"configStore": {"url": "s3://bucket/configs"}}}


@pytest.mark.parametrize(("running", "wanted"), [(1, 3), (3, 1)])
def test_brokers_are_not_joined_or_parted_without_a_backup_of_the_configs(
    running: int, wanted: int, helm: Helm
) -> None:
    with api_server(THERE, brokers=running) as kubeconfig:
        assert helm.install(kubeconfig, {"nats": {"replicas": running}})
        assert helm.install(kubeconfig, {"nats": {"replicas": wanted}, **BUCKET})
        with pytest.raises(RefusedError, match=rf"nats.replicas: {running} brokers run, and with {wanted} they lose"):
            helm.install(kubeconfig, {"nats": {"replicas": wanted}})
