"""The names of everything in the queue: subjects, queues and consumers, and what they are set to."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from sie_core.cluster.messages.work import subject
from sie_core.contracts import ConsumerSettings, QueueSettings

MOST_AGE_S = 900.0
"""No message stays longer, whatever its own time to live."""
MOST_SUBJECT = 512
"""Characters of a subject that a peer names."""
_TOKEN = r"[!-)+-\-/-=?-~]+"
"""Printable ASCII without blanks, `*`, `.` and `>`."""
_PLAIN = re.compile(rf"{_TOKEN}(?:\.{_TOKEN}){{2,}}")


@lru_cache(maxsize=16_384)
def work_subject(model: str, pool: str, bundle: str) -> str:
    """Name the subject of a model's work. Resource pool, machine profile and bucket are the defaults."""
    return subject("sie", "work", pool, "default", "any", bundle, model, "0")


def work_queue(pool: str) -> QueueSettings:
    """Describe the queue of a pool."""
    return QueueSettings(
        name="-".join(("sie", "work", subject(pool))),
        subjects=(subject("sie", "work", pool) + ".>",),
        max_age_s=MOST_AGE_S,
    )


def dead_subject(pool: str, model: str) -> str:
    """Name the subject of the dead letters of a model."""
    return subject("sie", "dlq", pool, model)


def dead_queue(pool: str) -> QueueSettings:
    """Describe the queue of a pool's dead letters. Nothing pulls from it: an operator reads it, or its time ends."""
    return QueueSettings(
        name="-".join(("sie", "dlq", subject(pool))),
        subjects=(subject("sie", "dlq", pool) + ".>",),
        max_messages=1_000,
        max_bytes=1 << 28,
        max_age_s=86_400.0,
    )


def work_consumer(pool: str, work: str, ack_wait_s: float, max_deliver: int) -> ConsumerSettings:
    """Describe the consumer of one model's work, whatever its bucket.

    Args:
        pool: The queue pool.
        work: From `work_subject`.
        ack_wait_s: See `ConsumerSettings`.
        max_deliver: See `ConsumerSettings`.
    """
    pattern = work.rpartition(".")[0] + ".*"
    name = "w-" + hashlib.blake2b(pattern.encode(), digest_size=12).hexdigest()
    return ConsumerSettings(work_queue(pool).name, name, pattern, ack_wait_s=ack_wait_s, max_deliver=max_deliver)


def needed_subject(pool: str) -> str:
    """Name the broadcast of gateways that a model of a pool is asked for; its payload is the subject of the work."""
    return subject("sie", "needed", pool)


def cancel_subject(pool: str) -> str:
    """Name the broadcast of gateways that nobody waits for a request any more; its payload is the request's reply."""
    return subject("sie", "cancel", pool)


def gateways_subject(pool: str) -> str:
    """Name the heartbeats of the gateways of a pool; the payload is a frame whose head names inbox and interval."""
    return subject("sie", "gateways", pool)


def health_subject(worker: str) -> str:
    """Name the heartbeats of a worker."""
    return subject("sie", "health", worker)


EVERY_HEALTH = "sie.health.*"
EVERY_CONFIG = "sie.config.>"
"""Changes of model configs, told by the config service alone."""
ALL_MODELS = "sie.config.models._all"
"""The changes of every model's config, whatever its bundles."""

SNAPSHOTS = "sie-configs"
"""The key-value store of the config service's last export."""
FACTS = "sie-facts"
"""The key-value store of what workers found out about models."""


def config_subject(bundle: str) -> str:
    """Name the changes of the configs of one bundle's models."""
    return subject("sie", "config", "models", bundle)


def is_inbox(subject: str, own_inbox: str) -> bool:
    """Whether a subject lies below an inbox of some process, as far as it tells.

    Args:
        subject: It, as a peer wrote it.
        own_inbox: An inbox of this process; those of others begin as it does.
    """
    plain = len(subject) <= MOST_SUBJECT and _PLAIN.fullmatch(subject) is not None
    return plain and subject.partition(".")[0] == own_inbox.partition(".")[0]
