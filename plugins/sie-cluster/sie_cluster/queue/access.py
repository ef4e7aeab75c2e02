"""What each program's user may do at the broker: `sie cluster up` and the broker's configuration say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sie_cluster.queue.subjects import (
    EVERY_CONFIG,
    EVERY_HEALTH,
    HEALTH_WANTED,
    JOURNAL,
    POOLS,
    cancel_subject,
    dead_queue,
    gateways_subject,
    health_subject,
    needed_subject,
    waiting_subject,
    work_queue,
)
from sie_core.contracts import Access, QueueSettings

GATEWAY, WORKER, CONFIG = "gateway", "worker", "config"
STORES = (POOLS,)
"""Every key-value store of a cluster."""


def gateway_access(pools: Sequence[str], name: str | None = None) -> Access:
    """Say what a gateway does: it fills the queues of pools, dead letters too, and reads its own inbox.

    It makes none: who does could read what all others send.

    Args:
        pools: The queue pools.
        name: Of the gateway; None for a user that all gateways share, who may read one another's inboxes.
    """
    told = (needed_subject, waiting_subject, cancel_subject, gateways_subject)
    return Access(
        user_name(GATEWAY, name),
        sends=(*(subject(pool) for subject in told for pool in pools), HEALTH_WANTED),
        hears=(EVERY_HEALTH, EVERY_CONFIG),
        answers=(WORKER,),
        fills=queues(pools),
        keeps=(POOLS,),
    )


def worker_access(pool: str, name: str | None = None) -> Access:
    """Say what a worker's sidecar does: it pulls from its pool, answers gateways and tells of itself.

    Args:
        pool: Its queue pool.
        name: Of the worker; None for a user that all workers share, who may send one another's heartbeats.
    """
    return Access(
        user_name(WORKER, name),
        sends=(EVERY_HEALTH if name is None else health_subject(name), HEALTH_WANTED),
        hears=(
            needed_subject(pool),
            waiting_subject(pool),
            cancel_subject(pool),
            gateways_subject(pool),
            EVERY_HEALTH,
            HEALTH_WANTED,
            EVERY_CONFIG,
        ),
        answers=(GATEWAY,),
        pulls=(work_queue(pool),),
        reads=(POOLS,),
    )


def config_access(pools: Sequence[str]) -> Access:
    """Say what the config service does: it alone writes configs and tells of changes, and it makes queues and stores.

    An operator reads dead letters as this user.
    """
    return Access(
        CONFIG,
        sends=(EVERY_CONFIG,),
        hears=(EVERY_CONFIG,),
        declares=queues(pools),
        pulls=tuple(map(dead_queue, pools)),
        declares_stores=STORES,
        declares_journals=(JOURNAL,),
        writes_journals=(JOURNAL,),
    )


def queues(pools: Sequence[str]) -> tuple[QueueSettings, ...]:
    """List the queues of pools: those of work, and those of dead letters."""
    return tuple(queue(pool) for queue in (work_queue, dead_queue) for pool in pools)


def accesses(pool: str, gateways: Sequence[str] = (), workers: Mapping[str, str] | None = None) -> list[Access]:
    """List the users of a cluster.

    Args:
        pool: The queue pool of what names none.
        gateways: Names of gateways that have users of their own; without any they share one.
        workers: The queue pool of each worker that has a user of its own; without any they share one.
    """
    pools = list(dict.fromkeys([pool, *(workers or {}).values()]))
    return [
        *(gateway_access(pools, name) for name in gateways or (None,)),
        *([worker_access(of, name) for name, of in workers.items()] if workers else [worker_access(pool)]),
        config_access(pools),
    ]


def user_name(role: str, name: str | None = None) -> str:
    """Name a user."""
    return role if name is None else f"{role}.{name}"
