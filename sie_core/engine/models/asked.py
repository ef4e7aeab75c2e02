"""What a request asks of a loaded model. Plain data."""

from __future__ import annotations

from typing import NamedTuple

from sie_core.contracts import Task
from sie_core.postprocess.plan import OutputPlan


class Asked(NamedTuple):
    """What a request asks of a model."""

    # For the adapter; without its LoRA adapter, which is loaded afterwards.
    task: Task
    plan: OutputPlan
    # The name of the LoRA adapter.
    lora: str | None
    # Options of the request that only other operations or families read, and what else the model has nothing for.
    ignored: tuple[str, ...]
