"""Values that the chart is rendered with: every switch, and pairs of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

SECRET = {"secrets": {"existingSecret": "mine"}}
KEDA = {"autoscaling": {"enabled": True, "prometheus": {"serverAddress": "http://prometheus:9090"}}}
AXES: dict[str, list[dict[str, Any]]] = {
    "brokers": [
        {},
        {"nats": {"replicas": 3}},
        {"nats": {"enabled": False, "url": "nats://one:4222", "users": False}},
    ],
    "users": [{}, {"nats": {"users": False}}],
    "data": [{}, {"nats": {"persistence": {"enabled": False}}}, {"nats": {"persistence": {"storageClass": "fast"}}}],
    "secrets": [{}, SECRET, {"secrets": {"environmentSecret": "bucket"}}],
    "auth": [{}, {"auth": {"mode": "token"}}, {"auth": {"mode": "token", "tokens": ["0123456789abcdef"]}}],
    "open metrics": [{}, {"auth": {"exemptOperational": True}}],
    "hub": [{}, {"hfToken": {"create": True, "value": "hf_x"}}, {"hfToken": {"existingSecret": "hub"}}],
    "payloads": [{}, {"payloadStore": {"enabled": True, "url": "s3://bucket/payloads"}}],
    "sidecar": [{}, {"workers": {"common": {"workerSidecar": {"enabled": False}}}}],
    "pools": [
        {},
        {"workers": {"pools": {"l4": {"enabled": True}, "spot": {"machineProfile": "l4-spot", "maxReplicas": 3}}}},
        {"workers": {"pools": {"cpu": {"enabled": False}}}},
        {"workers": {"pools": {"cpu": {"bundles": ["default", "gliner"], "queuePool": "slow"}}}},
    ],
    "scaling": [{}, KEDA],
    "monitors": [{}, {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}],
    "alerts": [{}, {"alertRules": {"enabled": True, "labels": {"release": "prometheus"}}}],
    "dashboards": [{}, {"dashboards": {"enabled": True, "labels": {"grafana_dashboard": "sie"}}}],
    "policies": [{}, {"networkPolicy": {"enabled": False}}, {"networkPolicy": {"gatewayFrom": [{"podSelector": {}}]}}],
    "ingress": [
        {},
        {"ingress": {"enabled": True, "host": "sie.example.com", "tlsSecret": "tls", "className": "nginx"}},
    ],
    "gateways": [{}, {"gateway": {"autoscaling": {"enabled": True}}}],
    "backup": [
        {},
        {"config": {"configStore": {"url": "gs://bucket/configs"}}},
        {"config": {"replicas": 1, "configStore": {"persistence": {"enabled": True}}}},
        {"config": {"configStore": {"persistence": {"enabled": True, "accessMode": "ReadWriteMany"}}}},
    ],
    "models": [{}, {"config": {"models": {"a.yaml": "sie_id: acme/a\n"}}}],
    "cache": [
        {},
        {"workers": {"common": {"cacheStorageClass": "fast"}}},
        {"workers": {"common": {"hfCache": {"existingClaim": "weights"}}}},
        {"workers": {"common": {"clusterCache": {"url": "s3://bucket/weights", "fill": True}}}},
    ],
    "images": [{}, {"image": {"registry": "ghcr.io/acme", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]}}],
    "prepull": [{}, {"workers": {"common": {"imagePrepull": {"enabled": True}}}}],
    "account": [{}, {"serviceAccount": {"create": False}}],
}


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values over one another, the last on top."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            old = found.get(key)
            both = isinstance(old, dict) and isinstance(value, Mapping)
            found[key] = merged(old, value) if both else value
    return found


def covering() -> list[dict[str, Any]]:
    """List values in which each choice of an axis meets each choice of every other one, the same at each call."""
    drawn = random.Random(7)
    names = list(AXES)
    left = {
        (one, i, other, j)
        for one, other in combinations(names, 2)
        for i in range(len(AXES[one]))
        for j in range(len(AXES[other]))
    }
    rows = []
    while left:
        best: tuple[int, dict[str, int]] | None = None
        for _ in range(40):
            row = {name: drawn.randrange(len(AXES[name])) for name in names}
            one, i, other, j = min(left)
            row[one], row[other] = i, j
            covers = sum((a, row[a], b, row[b]) in left for a, b in combinations(names, 2))
            if best is None or covers > best[0]:
                best = covers, row
        assert best is not None
        left -= {(a, best[1][a], b, best[1][b]) for a, b in combinations(names, 2)}
        rows.append(best[1])
    return [merged(*(AXES[name][row[name]] for name in names)) for row in rows]


def every_choice() -> Iterator[dict[str, Any]]:
    """Yield each choice alone, and the covering rows; an equal one once."""
    seen = set()
    for each in (*(choice for choices in AXES.values() for choice in choices), *covering()):
        text = json.dumps(each, sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield each
