"""Built-in plugin: the batch policy `default`."""

from __future__ import annotations

from sie_core.batching import BatchFormer
from sie_core.contracts import CONTRACT_VERSION
from sie_core.contracts.device.batching import BatchPolicyFactory
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "sie_batch_policies"]


@hookimpl
def sie_batch_policies() -> dict[str, BatchPolicyFactory]:
    """Register the batch former."""
    return {"default": BatchFormer}
