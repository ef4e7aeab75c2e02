"""Waits until the workers of a cluster have configs that were written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from sie_cluster.cli.services import Refused, Service

LOOK_S = 0.2
"""Between two looks."""
GATEWAY = "gateway"


def wait_for_workers(gateway: Service, models: Iterable[str], epoch: int, wait_s: float) -> Mapping[str, list[str]]:
    """Wait until the gateway serves an epoch, and every worker has each of these models as it is there.

    A bundle without workers is not waited for: its first one begins with the configs of then.

    Returns:
        Who lags when the time is over, with the models: names of workers, and `gateway`.

    Raises:
        Away: The gateway gives no answer.
    """
    until, left = time.monotonic() + wait_s, list(models)
    while True:
        lagging: dict[str, list[str]] = {}
        for model_id in left:
            for each in _lagging(gateway, model_id, epoch):
                lagging.setdefault(each, []).append(model_id)
        if not lagging or time.monotonic() >= until:
            return lagging
        left = sorted({model_id for models in lagging.values() for model_id in models})
        time.sleep(LOOK_S)


def _lagging(gateway: Service, model_id: str, epoch: int) -> Iterable[str]:
    try:
        told = gateway.ask("GET", f"/v1/configs/models/{quote(model_id, safe='')}/status")
    except Refused as refused:
        if refused.status != 404:
            raise
        return [GATEWAY]
    if told["config_epoch"] < epoch:
        return [GATEWAY]
    return sorted({worker for bundle in told["bundles"] for worker in bundle["pending_workers"]})
