"""Every key of values.yaml changes a manifest: none is dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helm.engine import CHART, Helm
from tests.helm.matrix import KEDA, merged

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
ON: dict[str, Any] = merged(
    VALUES,
    KEDA,
    {
        "auth": {"mode": "token"},
        "serviceMonitor": {"enabled": True},
        "alertRules": {"enabled": True},
        "dashboards": {"enabled": True},
        "ingress": {"enabled": True, "host": "sie.example.com"},
        "workers": {"pools": {"l4": {"enabled": True}}},
        "autoscaling": {"prometheus": {"authenticationRef": "mine"}},
    },
)
"""Most switches on, so that what they switch can be seen; generated secrets of each render differ, and are left out."""
POOLS = {"workers": {"pools": {name: {"machineProfile": name} for name in VALUES["machineProfiles"]}}}
FOLDER = {"config": {"replicas": 1, "configStore": {"persistence": {"enabled": True}}}}
BUCKET = {"workers": {"common": {"clusterCache": {"url": "s3://a/b"}}}}
SCALED = {"gateway": {"autoscaling": {"enabled": True}}}
NO_KEDA = {"autoscaling": {"enabled": False}}
SPECIAL: dict[str, tuple[dict[str, Any], Any]] = {
    "fullnameOverride": ({}, "other"),
    "image.registry": ({}, "ghcr.io/acme"),
    "image.tag": ({}, "1.2.3"),
    "image.pullPolicy": ({}, "Always"),
    "image.pullSecrets": ({}, [{"name": "pull"}]),
    "log.level": ({}, "DEBUG"),
    "serviceAccount.name": ({}, "other"),
    "secrets.existingSecret": ({}, "mine"),
    "secrets.environmentSecret": ({}, "mine"),
    "auth.mode": ({"auth": {"mode": "none"}}, "token"),
    "auth.token": ({}, "0123456789abcdef"),
    "auth.tokens": ({}, ["0123456789abcdef"]),
    "hfToken.create": ({"hfToken": {"value": ""}}, {"hfToken": {"create": True, "value": "hf_x"}}),
    "hfToken.value": ({"hfToken": {"create": True, "value": "hf_y"}}, "hf_x"),
    "hfToken.existingSecret": ({}, "mine"),
    "hfToken.key": ({"hfToken": {"existingSecret": "mine"}}, "other"),
    "gateway.image": ({}, "other"),
    "gateway.defaultMachineProfile": ({}, "l4"),
    "gateway.service.type": ({}, "NodePort"),
    "gateway.autoscaling.minReplicas": (SCALED, 3),
    "gateway.autoscaling.maxReplicas": (SCALED, 12),
    "gateway.autoscaling.targetCPUUtilizationPercentage": (SCALED, 50),
    "ingress.className": ({}, "nginx"),
    "ingress.host": ({}, "other.example.com"),
    "ingress.tlsSecret": ({}, "tls"),
    "config.image": ({}, "other"),
    "config.bundle": ({}, "gliner"),
    "config.models": ({}, {"a.yaml": "sie_id: acme/a\n"}),
    "config.configStore.url": ({}, "s3://a/b"),
    "config.configStore.persistence.enabled": ({"config": {"replicas": 1}}, True),
    "config.configStore.persistence.size": (FOLDER, "2Gi"),
    "config.configStore.persistence.storageClass": (FOLDER, "fast"),
    "config.configStore.persistence.accessMode": (FOLDER, "ReadWriteMany"),
    "nats.enabled": ({"secrets": {"existingSecret": "mine"}}, {"nats": {"enabled": False, "url": "nats://x:4222"}}),
    "nats.url": ({"nats": {"enabled": False, "url": "nats://x:4222"}, "secrets": {"existingSecret": "mine"}}, "nats://y:4222"),
    "nats.replicas": ({}, 3),
    "nats.image": ({}, "nats:2.14"),
    "nats.persistence.storageClass": ({}, "fast"),
    "payloadStore.enabled": ({}, {"payloadStore": {"enabled": True, "url": "s3://a/b"}}),
    "payloadStore.url": ({"payloadStore": {"enabled": True, "url": "s3://a/b"}}, "s3://a/c"),
    "workers.common.image": ({}, "other"),
    "workers.common.bundle": ({"workers": {"pools": {"x": {"machineProfile": "l4"}}}}, "gliner"),
    "workers.common.platform": ({}, "cuda"),
    "workers.common.startupSeconds": ({}, 900),
    "workers.common.preloadModels": ({}, ["acme/a"]),
    "workers.common.cacheStorageClass": ({}, "fast"),
    "workers.common.clusterCache.url": ({}, "s3://a/b"),
    "workers.common.clusterCache.fill": (BUCKET, True),
    "workers.common.hfCache.existingClaim": ({}, "weights"),
    "workers.common.workerSidecar.image": ({}, "other"),
    "workers.pools.cpu.machineProfile": ({}, "l4"),
    "workers.pools.cpu.bundles": ({}, ["default", "gliner"]),
    "workers.pools.l4.machineProfile": ({}, "cpu"),
    "workers.pools.l4.bundles": ({}, ["gliner"]),
    "autoscaling.enabled": (NO_KEDA, True),
    "autoscaling.prometheus.serverAddress": ({}, "http://other:9090"),
    "autoscaling.prometheus.authenticationRef": ({}, "other"),
    "autoscaling.prometheus.matchers": ({}, {"namespace": "search"}),
    "autoscaling.fallback.behavior": ({}, "static"),
    "serviceMonitor.interval": ({}, "30s"),
    "dashboards.labels.grafana_dashboard": ({}, "2"),
    "networkPolicy.gatewayFrom": ({}, [{"podSelector": {}}]),
    "networkPolicy.metricsFrom": ({}, []),
}  # fmt: skip
"""Values that the rest has to have for a key to matter, and the key's other value, or values with it."""


def keys(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every key that holds no further ones, with its value; empty maps and lists are values."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from keys(value, (*path, key))
        else:
            yield (*path, key), value


def other(path: tuple[str, ...], value: Any) -> Any:
    """Choose another value that is allowed."""
    last = path[-1]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if last.lower().endswith("settings"):
        return {"SIE_TRACE_HOOKS": "true"}
    if last == "tolerations":
        return [{"key": "other", "operator": "Exists", "effect": "NoExecute"}]
    if value == {}:
        return {"other": "true"}
    if last in ("cpu", "memory", "size", "cacheStorageSize"):
        return "7" if last == "cpu" else "7Gi"
    raise AssertionError(f"SPECIAL says nothing of {'.'.join(path)}")


def known(path: tuple[str, ...]) -> bool:
    """Whether values.yaml has a key, and not only this module."""
    at_hand: Any = VALUES
    for key in path:
        if not isinstance(at_hand, dict) or key not in at_hand:
            return False
        at_hand = at_hand[key]
    return True


def at(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Make values that hold one."""
    return {path[0]: value if len(path) == 1 else at(path[1:], value)}


@pytest.mark.timeout(300)
def test_every_key_of_the_values_changes_a_manifest(helm: Helm) -> None:
    dead, rendered = [], dict[str, dict[str, str]]()
    for path, value in keys(ON):
        if not known(path):
            continue
        needed, chosen = SPECIAL.get(".".join(path), (POOLS if path[0] == "machineProfiles" else {}, None))
        chosen = other(path, value) if chosen is None else chosen
        changed = chosen if isinstance(chosen, dict) and path[0] in chosen else at(path, chosen)
        before = merged(ON, needed)
        if f"{needed}" not in rendered:
            rendered[f"{needed}"] = texts(helm, before)
        if rendered[f"{needed}"] == texts(helm, merged(before, changed)):
            dead.append(".".join(path))
    assert dead == []


def texts(helm: Helm, values: dict[str, Any]) -> dict[str, str]:
    """Render without what differs each time; tokens that are given still show."""
    found = helm.texts(values)
    found.pop("sie-cluster/templates/NOTES.txt")
    secrets = yaml.safe_load_all(found.pop("sie-cluster/templates/shared/secrets.yaml", ""))
    given = {"auth-token", "auth-tokens", "token", "other"}
    for each in secrets:
        if each:
            shown = {key: value if key in given else "" for key, value in each["data"].items()}
            if not values["auth"].get("token"):
                shown.pop("auth-token", None)
            found[each["metadata"]["name"]] = f"{shown}"
    return found
