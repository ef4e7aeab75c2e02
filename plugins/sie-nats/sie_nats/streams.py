"""What streams and consumers are set to: the one place that turns queue settings into JetStream's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_core.contracts import ConsumerSettings, QueueSettings

GROUP = "work"
"""The priority group of every consumer; pulls name it."""


def stream_config(settings: QueueSettings, storage: str, replicas: int) -> dict[str, Any]:
    """Give a stream's configuration, durations in nanoseconds."""
    return {
        "name": settings.name,
        "subjects": list(settings.subjects),
        "retention": "workqueue",
        "storage": storage,
        "num_replicas": replicas,
        "discard": "new",
        "discard_new_per_subject": settings.max_messages_per_subject is not None,
        "max_msgs": settings.max_messages,
        "max_msgs_per_subject": settings.max_messages_per_subject or -1,
        "max_bytes": settings.max_bytes,
        "max_age": nanoseconds(settings.max_age_s),
        "duplicate_window": nanoseconds(min(settings.duplicate_window_s, settings.max_age_s)),
        "allow_msg_ttl": True,
        "allow_direct": True,
    }


def consumer_config(settings: ConsumerSettings) -> dict[str, Any]:
    """Give a pull consumer's configuration, durations in nanoseconds."""
    return {
        "durable_name": settings.name,
        "filter_subject": settings.subject,
        "ack_policy": "explicit",
        "ack_wait": nanoseconds(settings.ack_wait_s),
        "max_deliver": settings.max_deliver,
        "max_ack_pending": settings.max_in_flight,
        "inactive_threshold": nanoseconds(settings.idle_s),
        "priority_policy": "prioritized",
        "priority_groups": [GROUP],
    }


def differences(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """List what the broker has and what is wanted, of the settings that differ; defaults are left out."""
    return {
        name: (there.get(name), value)
        for name, value in wanted.items()
        if there.get(name) != value and not (value in (False, -1) and name not in there)
    }


def nanoseconds(seconds: float) -> int:
    """Convert seconds."""
    return round(seconds * 1_000_000_000)
