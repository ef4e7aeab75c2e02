"""The part of two custom resources' schemas that the chart uses, strict: a field that is not here is a fault.

After the definitions of KEDA 2.17 (keda.sh/v1alpha1) and of the Prometheus operator (monitoring.coreos.com/v1).
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}


def of(required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": fields, "required": required.split()}


def resource(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = of("name labels", name=TEXT, labels={"type": "object", "additionalProperties": TEXT})
    return of(
        "apiVersion kind metadata spec", apiVersion={"const": api}, kind={"const": kind}, metadata=metadata, spec=spec
    )


COUNT = {"type": "integer", "minimum": 0}
PROMETHEUS = of(
    "serverAddress query threshold",
    serverAddress=TEXT,
    query=TEXT,
    threshold={"type": "string", "pattern": r"^[0-9.]+$"},
    activationThreshold={"type": "string", "pattern": r"^[0-9.]+$"},
    ignoreNullValues={"enum": ["true", "false"]},
)
TEXTS = {"type": "object", "additionalProperties": TEXT}
RULE = of(
    "expr",
    alert=TEXT,
    record=TEXT,
    expr=TEXT,
    **{"for": {"type": "string", "pattern": r"^\d+(s|m)$"}},
    labels=TEXTS,
    annotations=TEXTS,
)
CUSTOM = {
    "ScaledObject": resource(
        "keda.sh/v1alpha1",
        "ScaledObject",
        of(
            "scaleTargetRef triggers",
            scaleTargetRef=of("name", apiVersion=TEXT, kind=TEXT, name=TEXT),
            pollingInterval=COUNT,
            cooldownPeriod=COUNT,
            minReplicaCount=COUNT,
            maxReplicaCount=COUNT,
            fallback=of(
                "failureThreshold replicas",
                failureThreshold=COUNT,
                replicas=COUNT,
                behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
            ),
            triggers={
                "type": "array",
                "minItems": 1,
                "items": of(
                    "type metadata",
                    type={"const": "prometheus"},
                    name=TEXT,
                    metadata=PROMETHEUS,
                    authenticationRef=of("name", name=TEXT),
                ),
            },
        ),
    ),
    "ServiceMonitor": resource(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        of(
            "selector endpoints",
            selector=of("matchLabels", matchLabels={"type": "object", "additionalProperties": TEXT}),
            endpoints={
                "type": "array",
                "minItems": 1,
                "items": of(
                    "port",
                    port=TEXT,
                    path=TEXT,
                    interval={"type": "string", "pattern": r"^\d+(s|m)$"},
                    relabelings={"type": "array", "items": of("targetLabel", targetLabel=TEXT, replacement=TEXT)},
                    authorization=of("credentials", credentials=of("name key", name=TEXT, key=TEXT)),
                ),
            },
        ),
    ),
    "PrometheusRule": resource(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        of(
            "groups",
            groups={
                "type": "array",
                "minItems": 1,
                "items": of("name rules", name=TEXT, rules={"type": "array", "minItems": 1, "items": RULE}),
            },
        ),
    ),
}
