"""The asynchronous client: a thin shell that performs what the protocol asks for.

It decides nothing: requests, retries and results are the protocol's, on which the synchronous client stands
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from sie_sdk._calls import transport
from sie_sdk._calls.exchange import Done, Offload, Operation, Response, Send, Sleep, TransportFailure, step
from sie_sdk._calls.keywords import keywords
from sie_sdk._calls.many import Queries
from sie_sdk._calls.parallel import as_tasks
from sie_sdk._calls.protocol import Protocol
from sie_sdk.many import EncodeMany, ScoreMany
from sie_sdk.settings import (
    CallSettings,
    EncodeManySettings,
    EncodeSettings,
    ExtractSettings,
    LookupSettings,
    ScoreManySettings,
    TokenizeSettings,
)
from sie_sdk.types import (
    EncodeResult,
    ExtractResult,
    HealthInfo,
    ItemLike,
    ModelInfo,
    ScoreResult,
    Token,
    WireFormat,
)

Result = TypeVar("Result")


class SIEAsyncClient:
    """A client of one SIE server. Tasks of one event loop may share it; close it, or use it in an `async with` block.

    Arguments and errors are those of `SIEClient`.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
        read_timeout_s: float | None = None,
        api_key: str | None = None,
        gpu: str | None = None,
        options: Mapping[str, Any] | None = None,
        max_connections: int | None = None,
        wire_format: WireFormat = "msgpack",
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._protocol = Protocol.create(base_url, api_key, gpu, options, wire_format)
        self._timeouts = transport.timeouts(timeout_s, connect_timeout_s, read_timeout_s)
        self._http = http_client or httpx.AsyncClient(**transport.settings(max_connections))
        self._owns_http = http_client is None

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self._protocol.writer.base_url

    # A str is a sequence of str too: the first overload that fits is the one meant.
    @overload
    async def encode(  # type: ignore[overload-overlap]
        self, model: str, items: ItemLike, **settings: Unpack[EncodeSettings]
    ) -> EncodeResult: ...

    @overload
    async def encode(
        self, model: str, items: Sequence[ItemLike], **settings: Unpack[EncodeSettings]
    ) -> list[EncodeResult]: ...

    @keywords(EncodeSettings)
    async def encode(
        self, model: str, items: ItemLike | Sequence[ItemLike], **settings: Unpack[EncodeSettings]
    ) -> EncodeResult | list[EncodeResult]:
        """Encode one item, or a list of them, into vectors; results come in the order of the items.

        Arguments, results and errors are those of `SIEClient.encode`.
        """
        return await self._run(self._protocol.encode(model, items, settings))

    @keywords(EncodeManySettings)
    async def encode_many(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[EncodeManySettings]
    ) -> EncodeMany:
        """Encode any number of items, in requests of `batch_size` of which `parallel` are in flight.

        Arguments, results and errors are those of `SIEClient.encode_many`. Iterating `items` holds up the event loop.
        """
        return await as_tasks(self._protocol.encode_many(model, items, settings), self._run)

    @keywords(CallSettings)
    async def score(
        self, model: str, query: ItemLike, items: ItemLike | Sequence[ItemLike], **settings: Unpack[CallSettings]
    ) -> ScoreResult:
        """Score items against a query and rank them, the best first.

        Arguments, results and errors are those of `SIEClient.score`.
        """
        return await self._run(self._protocol.score(model, query, items, settings))

    @keywords(ScoreManySettings)
    async def score_many(self, model: str, queries: Queries, **settings: Unpack[ScoreManySettings]) -> ScoreMany:
        """Score the documents of each of any number of queries; documents of a query may be more than 1 000.

        Arguments, results and errors are those of `SIEClient.score_many`.
        """
        return await as_tasks(self._protocol.score_many(model, queries, settings), self._run)

    @overload
    async def extract(  # type: ignore[overload-overlap]
        self, model: str, items: ItemLike, **settings: Unpack[ExtractSettings]
    ) -> ExtractResult: ...

    @overload
    async def extract(
        self, model: str, items: Sequence[ItemLike], **settings: Unpack[ExtractSettings]
    ) -> list[ExtractResult]: ...

    @keywords(ExtractSettings)
    async def extract(
        self, model: str, items: ItemLike | Sequence[ItemLike], **settings: Unpack[ExtractSettings]
    ) -> ExtractResult | list[ExtractResult]:
        """Extract from one item, or a list of them; results come in the order of the items.

        Arguments, results and errors are those of `SIEClient.extract`.
        """
        return await self._run(self._protocol.extract(model, items, settings))

    @overload
    async def tokenize(self, model: str, texts: str, **settings: Unpack[TokenizeSettings]) -> list[Token]: ...

    @overload
    async def tokenize(
        self, model: str, texts: list[str] | tuple[str, ...], **settings: Unpack[TokenizeSettings]
    ) -> list[list[Token]]: ...

    @keywords(TokenizeSettings)
    async def tokenize(
        self, model: str, texts: str | list[str] | tuple[str, ...], **settings: Unpack[TokenizeSettings]
    ) -> list[Token] | list[list[Token]]:
        """List the tokens of one text, or of each of a list, as the model's own tokenizer makes them; no model runs.

        Arguments, results and errors are those of `SIEClient.tokenize`.
        """
        return await self._run(self._protocol.tokenize(model, texts, settings))

    @keywords(LookupSettings)
    async def health(self, **settings: Unpack[LookupSettings]) -> HealthInfo:
        """Describe the server: whether it is well, and the models it holds. It is asked once.

        Raises:
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.health(settings))

    @keywords(LookupSettings)
    async def list_models(self, **settings: Unpack[LookupSettings]) -> list[ModelInfo]:
        """List the models the server knows.

        Raises:
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.list_models(settings))

    @keywords(LookupSettings)
    async def get_model(self, model: str, **settings: Unpack[LookupSettings]) -> ModelInfo:
        """Describe one model.

        Raises:
            RequestError: The server knows no such model; the message offers near names.
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.get_model(model, settings))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _run(self, operation: Operation[Result]) -> Result:
        action = step(operation, None)
        while not isinstance(action, Done):
            if isinstance(action, Offload):
                action = await asyncio.to_thread(step, operation, None)
            elif isinstance(action, Sleep):
                await asyncio.sleep(action.seconds)
                action = step(operation, None)
            else:
                action = step(operation, await self._exchange(action))
        return action.result

    async def _exchange(self, send: Send) -> Response | TransportFailure:
        timeouts = transport.timeouts_of(send, self._timeouts)
        try:
            answer = await self._http.request(
                send.method, send.url, headers=send.headers, content=send.body, timeout=timeouts
            )
        except httpx.HTTPError as error:
            return transport.failure(error)
        return transport.response(answer)
