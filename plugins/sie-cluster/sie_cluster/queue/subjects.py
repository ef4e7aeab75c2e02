"""The names of everything in the queue: subjects, queues and consumers, and what they are set to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache, partial

from sie_cluster.messages.work import subject
from sie_core.contracts import ConsumerSettings, QueueSettings

DEFAULT_RESOURCE_POOL = "default"
"""The capacity that nobody leased."""
ANY_PROFILE = "any"
"""In place of a machine profile: workers of each may answer."""
BUCKETS = 16
"""Of the LoRA adapters of one model: names that clients invent make no more keys than that."""
MOST_OWN = 64
"""LoRA adapters that the config of a model may declare for each of them to be a key of its own."""
SHARED, SHARED_KEYS = "~", 8
"""In place of the model: a subject that keys share. Each resource pool, profile and bundle has so many."""
MOST_KEYS = 900
"""Consumers of a queue whose keys have subjects of their own; the broker takes 1 000."""
KEY_IDLE_S = 600.0
"""A consumer that nobody pulls from is removed after so long."""
MOST_AGE_S = 900.0
"""No message stays longer, whatever its own time to live."""
MOST_OF_POOL, MOST_OF_SUBJECT = 100_000, 32_768
"""Messages in the queue of a pool, and of one subject; the broker refuses further ones, which is `QUEUE_FULL`."""
MOST_SUBJECT = 512
"""Characters of a subject that a peer names."""
_TOKEN = r"[!-)+-\-/-=?-~]+"
"""Printable ASCII without blanks, `*`, `.` and `>`."""
_PLAIN = re.compile(rf"{_TOKEN}(?:\.{_TOKEN}){{2,}}")


def work_subject(
    model: str,
    pool: str,
    bundle: str,
    *,
    resource_pool: str = DEFAULT_RESOURCE_POOL,
    profile: str = ANY_PROFILE,
    lora: str | None = None,
    own: bool = False,
) -> str:
    """Name the subject of a model's work, or of that of some of its LoRA adapters: a key that workers pull."""
    return _work_subject(pool, resource_pool, profile, bundle, model, bucket_of(lora, own=own))


_work_subject = lru_cache(maxsize=16_384)(partial(subject, "sie", "work"))


def bucket_of(lora: str | None, *, own: bool = False) -> str:
    """Name the bucket of a LoRA adapter, or the one that it has for itself; "0" without an adapter."""
    if lora is None:
        return "0"
    return f"own-{_spread(lora):08x}" if own else str(1 + _spread(lora) % BUCKETS)


def has_own_bucket(lora: str | None, declared: Collection[str]) -> bool:
    """Whether a LoRA adapter shares its bucket with no other: the model's config declares it, and few others."""
    return lora in declared and len(declared) <= MOST_OWN


def shared_subject(work: str) -> str:
    """Name the subject that takes a key's work where a queue has no room for its consumer."""
    prefix = ".".join(work.split(".")[:-2])
    return f"{prefix}.{SHARED}.{1 + _spread(work) % SHARED_KEYS}"


def _spread(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).digest())


def work_queue(pool: str) -> QueueSettings:
    """Describe the queue of a pool."""
    return QueueSettings(
        name="-".join(("sie", "work", subject(pool))),
        subjects=(subject("sie", "work", pool) + ".>",),
        max_messages=MOST_OF_POOL,
        max_messages_per_subject=MOST_OF_SUBJECT,
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
    """Describe the consumer of one key's work.

    Args:
        pool: The queue pool.
        work: From `work_subject` or `shared_subject`.
        ack_wait_s: See `ConsumerSettings`.
        max_deliver: See `ConsumerSettings`.
    """
    return ConsumerSettings(
        work_queue(pool).name,
        consumer_name(work),
        work,
        ack_wait_s=ack_wait_s,
        max_deliver=max_deliver,
        idle_s=KEY_IDLE_S,
    )


def consumer_name(work: str) -> str:
    """Name the consumer of a key's work."""
    return "w-" + hashlib.blake2b(work.encode(), digest_size=12).hexdigest()


def needed_subject(pool: str) -> str:
    """Name the broadcast of gateways that a model of a pool is asked for; its payload is the subject of the work."""
    return subject("sie", "needed", pool)


def waiting_subject(pool: str) -> str:
    """Name the broadcast of gateways that work of a pool waits unanswered; its payload is the subject of the work."""
    return subject("sie", "waiting", pool)


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
HEALTH_WANTED = "sie.health-wanted"
"""The broadcast of a peer that wants a heartbeat now: of every worker or, with its status, of the one that the payload
names."""
EVERY_CONFIG = "sie.config.>"
"""Changes of model configs, told by the config service alone."""
ALL_MODELS = "sie.config.models._all"
"""The changes of every model's config, whatever its bundles."""

JOURNAL = "sie-config"
"""The journal of the config service: the last write of each model, and the epoch as its number."""
POOLS = "sie-pools"
"""The key-value store of resource pools, and of which worker is whose."""


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
