"""Refuses requests that the queue does not take before anything is made for them: no task, no exchange, no flight.

At overload most requests end here. Everything that comes before that refusal is checked in the order in which the
handler checks it; a request that this finds anything else about is the handler's, with what was read of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Protocol

from starlette.types import Scope

from sie_core.api.codings.unpacking import coding_of
from sie_core.api.context import Api
from sie_core.api.http.envelopes import ENVELOPE
from sie_core.api.http.errors import Reply
from sie_core.api.http.middleware import RequestMiddleware, known, sender
from sie_core.api.http.model_id import check_model_id
from sie_core.api.http.offload import LARGE
from sie_core.api.inference.call import read_call
from sie_core.api.inference.direct import DirectRoutes
from sie_core.api.inference.handler import READ, read
from sie_core.api.inference.route import Operation, Route
from sie_core.contracts import InferenceError, InferenceRequest
from sie_core.logs import current_request

log = logging.getLogger(__name__)


class Refusing(Protocol):
    """Tells of a request that the backend would refuse."""

    def refuse(self, request: InferenceRequest) -> None:
        """Raise `QUEUE_FULL` where the backend's `infer` would at once; it is to be called where this does not."""
        ...


class EarlyRefusals:
    """Judges requests whose bodies have come whole.

    Args:
        api: The gate and the limits.
        refusing: Judges them.
        routes: Finds their routes.
        known_routes: The routes of inference.
        around: Answers requests otherwise.
    """

    def __init__(
        self,
        api: Api,
        refusing: Refusing,
        routes: DirectRoutes,
        known_routes: Iterable[Route],
        around: RequestMiddleware,
    ) -> None:
        self._api, self._refusing, self._direct, self._around = api, refusing, routes, around
        self._routes = {path: route for route in known_routes for path in route.paths}

    def __call__(self, scope: Scope, body: bytes) -> Reply | None:
        """Return the refusal of a request that the queue does not take; None for every other one."""
        if not self._around.refuses or len(body) >= LARGE or not self._direct.match(scope):
            return None
        started = time.monotonic()
        _, fields = known(scope)
        token = current_request.set(fields)
        try:
            self._judge(scope, body)
        except InferenceError as error:
            if error.code == "QUEUE_FULL":
                return self._around.refusal(scope, error, started, len(body))
        except Exception:
            log.debug("a request is not judged early", exc_info=True)  # whatever it is, the handler meets it too
        finally:
            current_request.reset(token)
        return None

    def _judge(self, scope: Scope, body: bytes) -> None:
        given, _ = known(scope)
        self._api.browsers.check(given)
        self._api.auth.check(scope["path"], given.getlist("authorization"))
        if "x-forwarded-for" not in given:  # a proxy that is trusted tells another address
            self._api.gate.refuse(sender(scope, given))
        route = self._routes[scope["route"].path]
        operation = route.operation
        plain = coding_of(given.get("content-encoding", "")) is None
        if not self._api.gate.has_room or not plain or len(body) > self._api.settings.max_request_body_bytes:
            return
        if not isinstance(operation, Operation):  # it is chosen by the body
            return
        model: str | None = scope["path_params"].get("model")
        if model is not None:
            check_model_id(model)
        call = read_call(self._api, given, model, msgpack=route.msgpack, waits=route.waits)
        if operation.envelope is not None:
            scope[ENVELOPE] = operation.envelope
        found = scope[READ] = read(self._api, call, operation, body)
        asked = found.asked
        # Whether the model takes token ids is asked first.
        if isinstance(asked, InferenceRequest) and all(item.token_ids is None for item in asked.items):
            self._refusing.refuse(asked)
