"""Leasing workers of a cluster: the calls on resource pools, and the renewal of a lease. No I/O, as all calls here."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sie_sdk._calls.exchange import Operation, Outcome, Response, Send, Sleep
from sie_sdk._requests.writer import Writer
from sie_sdk.errors import PoolError, RequestError
from sie_sdk.types import PoolInfo

RENEW_S: Final = 60.0
"""Between two renewals; a lease lasts twenty minutes."""
BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 10.0)
"""Pauses between the tries of one renewal."""

log = logging.getLogger("sie_sdk")


@dataclass(frozen=True, slots=True)
class PoolCalls:
    """The calls of one client."""

    writer: Writer
    answer: Callable[[Send], Operation[Response]]
    """Sends until there is an answer that is no failure."""

    def create(self, name: str, spec: Mapping[str, Any]) -> Operation[str]:
        """Make a pool and return its name.

        Raises:
            ValueError: The name is none, or fewer than no workers are asked for.
        """
        least = spec.get("minimum_worker_count")
        if least is not None and least < 0:
            raise ValueError(f"minimum_worker_count is {least}; it is 0 or more")
        asked = {key: value for key, value in {"name": _checked(name), **spec}.items() if value is not None}
        headers = {**self.writer.headers(with_body=False), "Content-Type": "application/json"}
        send = Send("POST", self._url(), headers, json.dumps(asked, default=list).encode())
        yield from self._asked(send, name)
        return name

    def get(self, name: str | None, own: str | None) -> Operation[PoolInfo | None]:
        """Describe a pool, this client's own where none is named; None where there is none."""
        pool = _named(name, own)
        response = yield from self._found(Send("GET", self._url(pool), self.writer.headers(with_body=False)), pool)
        return None if response is None else cast("PoolInfo", _read(response, pool))

    def delete(self, name: str | None, own: str | None) -> Operation[bool]:
        """End a pool, this client's own where none is named; whether there was one."""
        pool = _named(name, own)
        send = Send("DELETE", self._url(pool), self.writer.headers(with_body=False))
        return (yield from self._found(send, pool)) is not None

    def renewals(self, name: str) -> Operation[None]:
        """Renew the lease of a pool again and again, until there is no such pool."""
        send = Send("POST", self._url(name, "renew"), self.writer.headers(with_body=False))
        while True:
            yield Sleep(RENEW_S)
            for pause in (*BACKOFF_S[:-1], None):
                outcome = yield send
                if isinstance(outcome, Response) and outcome.status < 400:
                    break
                if isinstance(outcome, Response) and outcome.status == 404:
                    log.warning("the pool %s is gone; its lease is renewed no more", name)
                    return
                log.log(logging.WARNING if pause is None else logging.INFO, _told(name, outcome))
                if pause is not None:
                    yield Sleep(pause)

    def _found(self, send: Send, pool: str) -> Operation[Response | None]:
        try:
            return (yield from self._asked(send, pool))
        except PoolError as error:
            if isinstance(error.__cause__, RequestError) and error.__cause__.status_code == 404:
                return None
            raise

    def _asked(self, send: Send, pool: str) -> Operation[Response]:
        try:
            return (yield from self.answer(send))
        except RequestError as error:
            raise PoolError(str(error), pool_name=pool) from error

    def _url(self, *below: str) -> str:
        return self.writer.url("v1", "pools", *below)


def spec_of(
    gpus: Mapping[str, int] | None,
    gpu_caps: Mapping[str, int] | None,
    bundle: str | None,
    minimum_worker_count: int | None,
    pinned_models: Sequence[str] | None,
    queue_pool: str | None,
) -> dict[str, Any]:
    """Gather what a pool wants; None where that is left open."""
    return {
        "gpus": gpus,
        "gpu_caps": gpu_caps,
        "bundle": bundle,
        "minimum_worker_count": minimum_worker_count,
        "pinned_models": _listed(pinned_models),
        "queue_pool": queue_pool,
    }


def _listed(names: Iterable[str] | None) -> list[str] | None:
    if isinstance(names, str):
        raise TypeError(f"pinned_models is the string {names!r}; give a list of models")
    return None if names is None else list(names)


def _named(name: str | None, own: str | None) -> str:
    pool = name if name is not None else own
    if pool is None:
        raise ValueError("no pool is named, and this client has created none")
    return _checked(pool)


def _checked(name: str) -> str:
    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name of a pool")
    return name


def _read(response: Response, pool: str) -> dict[str, Any]:
    try:
        told = json.loads(response.body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise PoolError("the answer is no description of a pool", pool_name=pool)
    return told


def _told(name: str, outcome: Outcome) -> str:
    what = f"HTTP {outcome.status}" if isinstance(outcome, Response) else repr(getattr(outcome, "error", outcome))
    return f"the lease of the pool {name} was not renewed: {what}"
