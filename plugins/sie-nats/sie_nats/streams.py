"""Settings of streams and consumers: the one place that translates queue settings into JetStream's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_core.contracts import ConsumerSettings, QueueSettings

SPARE_TTL_S = 60


def spare_subject(queue: str) -> str:
    """Name the subject of a queue's spare message, which no consumer matches.

    When its last message is acknowledged, a stream on disk begins a new file and removes the old one: half a
    millisecond for every request that is alone. While one message stays that nobody pulls, the stream keeps its file.
    """
    return f"sie.spare.{queue}"


def spare_headers() -> dict[str, str]:
    """Return the headers of a spare message: it replaces the one before, and expires if no other follows."""
    return {"Nats-Rollup": "sub", "Nats-TTL": str(SPARE_TTL_S)}


def stream_config(settings: QueueSettings, storage: str, replicas: int) -> dict[str, Any]:
    """Return a stream's configuration, durations in nanoseconds."""
    on_disk = storage == "file"
    return {
        "name": settings.name,
        "subjects": [*settings.subjects, *([spare_subject(settings.name)] if on_disk else [])],
        "retention": "workqueue",
        "storage": storage,
        "num_replicas": replicas,
        "discard": "new",
        "discard_new_per_subject": settings.max_messages_per_subject is not None,
        "max_msgs": settings.max_messages + on_disk,  # the spare message
        "max_msgs_per_subject": settings.max_messages_per_subject or -1,
        "max_bytes": settings.max_bytes,
        "max_age": nanoseconds(settings.max_age_s),
        "duplicate_window": nanoseconds(min(settings.duplicate_window_s, settings.max_age_s)),
        "allow_msg_ttl": True,
        "allow_direct": True,
        "allow_rollup_hdrs": on_disk,
    }


def consumer_config(settings: ConsumerSettings) -> dict[str, Any]:
    """Return a pull consumer's configuration, durations in nanoseconds.

    What a consumer knows is in the broker's memory: on files each delivery costs three brokers more than all the rest.
    Where it is lost, the consumer is made again, and what was not acknowledged is delivered again.
    """
    return {
        "durable_name": settings.name,
        "filter_subject": settings.subject,
        "ack_policy": "explicit",
        "ack_wait": nanoseconds(settings.ack_wait_s),
        "max_deliver": settings.max_deliver,
        "max_ack_pending": settings.max_in_flight,
        "inactive_threshold": nanoseconds(settings.idle_s),
        "mem_storage": True,
    }


def differences(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """List the settings that differ, as (present, wanted); defaults are left out."""
    return {
        name: (there.get(name), value)
        for name, value in wanted.items()
        if there.get(name) != value and not (value in (False, -1) and name not in there)
    }


def nanoseconds(seconds: float) -> int:
    """Convert seconds."""
    return round(seconds * 1_000_000_000)
