"""What a sidecar checks of a delivery before it is handed on; the items are not read."""

from __future__ import annotations

from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.work import WorkHead, read_work_head
from sie_cluster.queue.subjects import is_inbox, shared_subject, work_subject
from sie_core.contracts import Delivery


def checked_head(delivery: Delivery, pool: str, bundle: str, own_inbox: str) -> WorkHead:
    """Read the head of a slice, where subject, model and reply belong together.

    Args:
        delivery: What was pulled.
        pool: The queue pool it is pulled from.
        bundle: That of this worker.
        own_inbox: An inbox of this process; those of gateways begin as it does.

    Raises:
        FrameError: They do not; it is dropped.
    """
    head = read_work_head(delivery.payload)
    if not any(_belongs(delivery.subject, head, pool, bundle, own=own) for own in (False, True)):
        raise FrameError(f"a slice for the model {head.model[:100]!r} came by the subject {delivery.subject[:200]!r}")
    if not is_inbox(head.reply, own_inbox):
        raise FrameError(f"{head.reply[:200]!r} is no inbox of a gateway")
    return head


def _belongs(subject: str, head: WorkHead, pool: str, bundle: str, *, own: bool) -> bool:
    work = work_subject(
        head.model, pool, bundle, resource_pool=head.resource_pool, profile=head.profile, lora=head.lora, own=own
    )
    return subject == work or subject == shared_subject(work)
