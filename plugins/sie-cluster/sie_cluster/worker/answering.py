"""Answers slices with a backend: frames in, results out. It does not matter here how frames travel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from sie_sdk.wire import pack, unpack

from sie_cluster.messages.errors import error_to_map
from sie_cluster.messages.frames import FrameError, NewerFrame, Pieces, size_of
from sie_cluster.messages.requests import Place, read_load_wait, read_request
from sie_cluster.messages.status import pack_model
from sie_cluster.messages.work import (
    MOST_RESULT_BYTES,
    ResultHead,
    WorkHead,
    read_work_head,
    result_pieces,
    to_map,
    work_sections,
)
from sie_core.contracts import (
    DecodeRequest,
    DecodingBackend,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    TokenizeRequest,
    TokenizingBackend,
    Tracer,
    Usage,
)
from sie_core.logs import ACCESS, RequestFields, current_request

NO_USAGE = Usage()
MOST_ERROR_BYTES, MOST_MESSAGE = 1 << 15, 2_000
"""Of an error in a result's head, and characters of its message where that is cut."""
ASKED = ("model", "operation", "request_id", "client", "priority", "left_s")
"""Of a head, what the request is made of."""

Places = Callable[[WorkHead], AbstractContextManager[bool]]

log = logging.getLogger(__name__)
access_log = logging.getLogger(ACCESS)


class WorkerBackend(TokenizingBackend, DecodingBackend, Protocol):
    """What answers; as an `InferenceBackend` where that has the same methods."""

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Answer a request."""
        ...

    async def describe(self, model: str) -> ModelInfo:
        """Describe one model."""
        ...

    async def load(self, model: str, lora: str | None = None) -> None:
        """Load a model, and one of its LoRA adapters where one is named."""
        ...


async def answer(
    backend: WorkerBackend,
    frame: bytes,
    places: Places | None = None,
    worker: str | None = None,
    tracer: Tracer | None = None,
    *,
    logs: bool = True,
) -> Pieces:
    """Answer a slice.

    Every failure is a result with an error of the table; what nobody foresaw is logged in full.

    Args:
        backend: Answers.
        frame: The slice.
        places: Makes what is entered around a wait for a load; None: there is always a place.
        worker: The name that the result tells.
        tracer: Records the traces that gateways began; None records none.
        logs: Whether the answered slice has a line in the log.

    Raises:
        FrameError: There is no head that says to whom.
    """
    head = read_work_head(frame)
    fields, started = RequestFields(head.request_id, _trace_id(head), head.model), time.monotonic()
    if tracer is not None and head.trace is not None:
        fields.begin(tracer, f"slice {head.operation}", started, {"traceparent": head.trace}, queued=True)
    current_request.set(fields)
    result, error = await _answered(backend, head, frame, places, worker, started if logs else None)
    if fields.trace is not None:
        facts: dict[str, Any] = {"items": head.items, "slice": head.slice, "attempt": head.attempt, "worker": worker}
        fields.trace.end(time.monotonic(), error, request_id=head.request_id, model=head.model, **facts)
    return result


async def _answered(
    backend: WorkerBackend,
    head: WorkHead,
    frame: bytes,
    places: Places | None,
    worker: str | None,
    started: float | None,
) -> tuple[Pieces, str | None]:
    """Return the result, and the code of its error."""
    try:
        reply, items = await _run(backend, head, frame, None if places is None else partial(places, head))
        result = _result(_head(head, reply, len(items), worker), items)
    except InferenceError as error:
        return _failure(head, error)
    except NewerFrame as error:
        log.warning("the slice %s is of a newer release: %s", head.id, error)
        told = "The worker is of an older release than its gateway, and cannot read this request; retry."
        return _failure(head, InferenceError("QUEUE_UNAVAILABLE", told))
    except FrameError as error:
        log.error("the slice %s cannot be read, or not its result be written: %s", head.id, error)
        told = "A worker could not read what its gateway sent, or not write its answer; its log says why."
        return _failure(head, InferenceError("INTERNAL_ERROR", told))
    except Exception:
        log.exception("the slice %s failed", head.id)
        told = "The server failed on this request; its log says why, under the id in X-SIE-Request-ID."
        return _failure(head, InferenceError("INTERNAL_ERROR", told))
    if started is not None:
        access_log.info(
            "%s of %d items, slice %d of %d, attempt %d", head.operation, head.items, head.slice, head.slices,
            head.attempt, extra={"latency_ms": round(1000 * (time.monotonic() - started), 2)},
        )  # fmt: skip
    return result, None


def _result(head: ResultHead, items: Sequence[bytes]) -> Pieces:
    result = result_pieces(head, items)
    if (size := size_of(result)) > MOST_RESULT_BYTES:
        told = f"The result has {size} bytes, and the queue takes {MOST_RESULT_BYTES}: ask for fewer items at a "
        raise InferenceError("REPLY_TOO_LARGE", told + "time, or a smaller dtype.")
    return result


async def _run(
    backend: WorkerBackend, head: WorkHead, frame: bytes, place: Place | None
) -> tuple[InferenceReply | None, Sequence[bytes]]:
    shared, items, query = work_sections(frame, head)
    if head.operation == "describe":
        return None, [pack_model(await backend.describe(head.model))]
    if head.operation in ("tokenize", "decode"):
        told: Any = unpack(shared)
        return None, await _ask_tokenizer(backend, head, told, [unpack(item) for item in items], place)
    told = {name: getattr(head, name) for name in ASKED}
    if head.client is None and head.slices > 1:
        told["client"] = head.reply  # slices of one request share what the request would have whole
    reply = await backend.infer(read_request(told, shared, items, query, place))
    return reply, reply.items


async def _ask_tokenizer(
    backend: WorkerBackend, head: WorkHead, shared: Mapping[str, Any], items: Sequence[Any], place: Place | None
) -> list[bytes]:
    asked: dict[str, Any] = {
        "special": shared["special"],
        "deadline": None if head.left_s is None else time.monotonic() + head.left_s,
        "load_wait": read_load_wait(shared["load_wait"], place),
    }
    if head.operation == "decode":
        return [pack(text) for text in await backend.decode(DecodeRequest(head.model, items, head.request_id, **asked))]
    wanted = TokenizeRequest(head.model, items, head.request_id, most=shared["most"], **asked)
    return [
        pack([[token.id, token.text, token.special, token.start, token.stop] for token in tokens])
        for tokens in await backend.tokenize(wanted)
    ]


def _head(head: WorkHead, reply: InferenceReply | None, items: int, worker: str | None) -> ResultHead:
    if reply is None:
        return ResultHead(head.request_id, head.slice, head.attempt, items)
    return ResultHead(
        head.request_id,
        head.slice,
        head.attempt,
        items,
        timing=to_map(reply.timing),
        usage=to_map(reply.usage),
        truncated=reply.truncated,
        lora=reply.lora,
        ignored_options=reply.ignored_options,
        query=None if reply.query == NO_USAGE else to_map(reply.query),
        query_truncated=reply.query_truncated,
        config=reply.config,
        worker=worker,
        computed=next(iter(reply.computed), None),
    )


def _failure(head: WorkHead, error: InferenceError) -> tuple[Pieces, str]:
    told = error_to_map(error)
    if len(pack(told)) > MOST_ERROR_BYTES:
        # A plugin may have put a whole text into it.
        log.error("the error of the slice %s is cut: %s", head.id, error)
        told = {"code": error.code, "message": error.message[:MOST_MESSAGE]}
    return result_pieces(ResultHead(head.request_id, head.slice, head.attempt, 0, error=told)), error.code


def _trace_id(head: WorkHead) -> str | None:
    return head.trace.split("-")[1] if head.trace and head.trace.count("-") == 3 else None
