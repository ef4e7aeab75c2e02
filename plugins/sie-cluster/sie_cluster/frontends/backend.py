"""The backend of a front end's API: each request goes whole to the process with the device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import NoReturn

from sie_sdk.wire import pack, unpack

from sie_cluster.gateway.flights.slicing import pack_items
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.messages.errors import error_from_map
from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.requests import pack_for_tokenizer, pack_shared, read_tokens
from sie_cluster.messages.status import read_model
from sie_cluster.messages.work import ResultHead, WorkHead, WorkOperation, decode_result, work_pieces
from sie_core.contracts import (
    DecodeRequest,
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    Token,
    TokenizeRequest,
)
from sie_core.logs import current_request, request_fields

Answer = tuple[ResultHead, list[bytes]]
LOST = "The process that runs the models has ended; retry shortly, or on another server."
NO_LOOKUPS = "A front end answers no lookup; the process that runs the models does. Report this as a bug."
NOTHING = pack(None)


class DeviceLink:
    """The connection to the process with the device. Methods are called on one event loop.

    Args:
        on_lost: Called when it has ended.
        on_drain: Called when new requests are to be turned away.
    """

    def __init__(self, on_lost: Callable[[], None], on_drain: Callable[[], None]) -> None:
        self._on_lost, self._on_drain = on_lost, on_drain
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._stream: FrameStream
        self.lost = False

    async def connect(self, path: Path) -> None:
        """Connect, once, before anything else.

        Raises:
            OSError: Nobody listens there.
        """
        loop = asyncio.get_running_loop()
        _, self._stream = await loop.create_unix_connection(
            lambda: FrameStream(lambda stream: None, self._frame, self._closed), str(path)
        )

    async def ask(self, head: WorkHead, shared: bytes, items: Sequence[bytes], query: bytes = b"") -> Answer:
        """Have a request answered; cancelled, its work is dropped there.

        Raises:
            InferenceError: What the engine raises; `QUEUE_UNAVAILABLE` if the process ends meanwhile.
        """
        if self.lost:
            raise InferenceError("QUEUE_UNAVAILABLE", LOST)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._stream.send(Kind.WORK, number, *work_pieces(head, shared, items, query))
        try:
            result, encoded = await answer
        except asyncio.CancelledError:
            self._stream.send(Kind.CANCEL, number)
            raise
        finally:
            self._waiting.pop(number, None)
        if result.error is not None:
            raise error_from_map(result.error)
        return result, encoded

    def tell(self, tally: bytes) -> None:
        """Tell what became of requests."""
        self._stream.send(Kind.TALLY, 0, tally)

    def drained(self) -> None:
        """Say that no request is in flight any more, and none will be."""
        self._stream.send(Kind.DRAIN, 0)

    def close(self) -> None:
        """Send what was handed over, and end the connection."""
        self._stream.close()

    def _frame(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.DRAIN:
            self._on_drain()
        if kind is not Kind.RESULT or (answer := self._waiting.get(number)) is None or answer.done():
            return
        try:
            answer.set_result(decode_result(payload))
        except FrameError as error:
            answer.set_exception(error)

    def _closed(self, stream: FrameStream) -> None:
        self.lost = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(InferenceError("QUEUE_UNAVAILABLE", LOST))
        self._on_lost()


class DeviceBackend:
    """Answers requests by the process with the device. Methods are called on one event loop.

    Args:
        link: Carries them.
    """

    def __init__(self, link: DeviceLink) -> None:
        self._link = link

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Have a request answered."""
        query = b"" if request.query is None else (await pack_items([request.query]))[0]
        items = await pack_items(request.items)
        head = _head(request, request.operation, len(items), request.client, request.priority)
        told, encoded = await self._link.ask(head, pack_shared(request), items, query)
        return InferenceReply(
            encoded,
            told.read_timing(),
            told.read_usage(),
            truncated=told.truncated,
            lora=told.lora,
            ignored_options=told.ignored_options,
            query=told.read_query(),
            query_truncated=told.query_truncated,
            config=told.config,
            computed=(told.computed,) if told.computed else (),
        )

    async def tokenize(self, request: TokenizeRequest) -> Sequence[Sequence[Token]]:
        """Have the tokens of texts listed."""
        return [read_tokens(item) for item in await self._ask(request, "tokenize")]

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Have the texts of tokens written."""
        return [str(unpack(item)) for item in await self._ask(request, "decode")]

    async def describe(self, model: str) -> ModelInfo:
        """Have one model described."""
        head = WorkHead(request_fields().request_id, 0, 1, 1, "describe", model, b"", 0, 1, 0, "")
        _, (described,) = await self._link.ask(head, NOTHING, [NOTHING])
        return read_model(described)

    def models(self) -> NoReturn:
        """Refuse: the process with the device answers all lookups."""
        raise InferenceError("INTERNAL_ERROR", NO_LOOKUPS)

    def model(self, model: str) -> NoReturn:
        """Refuse, as `models`."""
        raise InferenceError("INTERNAL_ERROR", NO_LOOKUPS)

    def plugins(self) -> NoReturn:
        """Refuse, as `models`."""
        raise InferenceError("INTERNAL_ERROR", NO_LOOKUPS)

    def health(self) -> Health:
        """Say whether the process with the device is there."""
        return Health(None, LOST if self._link.lost else None)

    async def _ask(self, request: TokenizeRequest | DecodeRequest, operation: WorkOperation) -> list[bytes]:
        shared, values = pack_for_tokenizer(request)
        _, items = await self._link.ask(_head(request, operation, len(values)), shared, values)
        return items


def _head(
    request: InferenceRequest | TokenizeRequest | DecodeRequest,
    operation: WorkOperation,
    items: int,
    client: str | None = None,
    priority: str | None = None,
) -> WorkHead:
    fields = current_request.get()
    return WorkHead(
        request.request_id, 0, 1, 1, operation, request.model, b"", 0, items, 0, "", client, priority,
        None if request.deadline is None else request.deadline - time.monotonic(),
        None if fields is None else fields.traceparent,
    )  # fmt: skip
