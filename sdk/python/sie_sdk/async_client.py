"""The asynchronous client: a thin shell that performs what the protocol asks for.

It decides nothing: requests, retries and results are the protocol's, on which the synchronous client stands
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from sie_sdk._calls import transport
from sie_sdk._calls.cluster import renewing
from sie_sdk._calls.cluster.pools import spec_of
from sie_sdk._calls.cluster.websocket import Frames
from sie_sdk._calls.exchange import Done, Offload, Operation, Response, Send, Sleep, TransportFailure, step
from sie_sdk._calls.keywords import keywords
from sie_sdk._calls.many import Queries
from sie_sdk._calls.parallel import outcome_of_tasks, pieces_of_tasks
from sie_sdk._calls.protocol import Protocol
from sie_sdk.many import EncodeMany, ExtractMany, FailedItem, RankedQuery, ScoreMany
from sie_sdk.settings import (
    AwaitSettings,
    CapacitySettings,
    EncodeManySettings,
    EncodeSettings,
    ExtractManySettings,
    ExtractSettings,
    LookupSettings,
    ScoreManySettings,
    ScoreSettings,
    TokenizeSettings,
    WatchSettings,
)
from sie_sdk.types import (
    CapacityInfo,
    EncodeResult,
    ExtractResult,
    HealthInfo,
    ItemLike,
    ModelInfo,
    PoolInfo,
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
        self._renewals = renewing.Tasks(self._run)
        self._pool: str | None = None

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
        """Encode many items, in requests of `batch_size` of which `parallel` are in flight, and collect the results.

        Arguments, results and errors are those of `SIEClient.encode_many`. Iterating `items` holds up the event loop.
        """
        return await outcome_of_tasks(self._protocol.encode_many(model, items, settings), self._run)

    @keywords(EncodeManySettings)
    def encode_iter(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[EncodeManySettings]
    ) -> AsyncGenerator[EncodeResult | FailedItem, None]:
        """Encode any number of items as `encode_many` does, and yield each result in the order of the items.

        Arguments, results and errors are those of `SIEClient.encode_iter`. Leave the loop, and close what this returns,
        to stop: requests in flight are cancelled. Iterating `items` holds up the event loop.
        """
        return pieces_of_tasks(self._protocol.encode_many(model, items, settings, "encode_iter"), self._run)

    @keywords(ScoreSettings)
    async def score(
        self, model: str, query: ItemLike, items: ItemLike | Sequence[ItemLike], **settings: Unpack[ScoreSettings]
    ) -> ScoreResult:
        """Score items against a query and rank them, the best first.

        Arguments, results and errors are those of `SIEClient.score`.
        """
        return await self._run(self._protocol.score(model, query, items, settings))

    @keywords(ScoreManySettings)
    async def score_many(self, model: str, queries: Queries, **settings: Unpack[ScoreManySettings]) -> ScoreMany:
        """Score the documents of each of many queries, which may be more than 1 000, and collect the rankings.

        Arguments, results and errors are those of `SIEClient.score_many`.
        """
        return await outcome_of_tasks(self._protocol.score_many(model, queries, settings), self._run)

    @keywords(ScoreManySettings)
    def score_iter(
        self, model: str, queries: Queries, **settings: Unpack[ScoreManySettings]
    ) -> AsyncGenerator[RankedQuery, None]:
        """Score as `score_many` does any number of queries, and yield the ranking of each, in their order.

        Arguments, results and errors are those of `SIEClient.score_iter`; stopping is as in `encode_iter`.
        """
        return pieces_of_tasks(self._protocol.score_many(model, queries, settings, "score_iter"), self._run)

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

    @keywords(ExtractManySettings)
    async def extract_many(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[ExtractManySettings]
    ) -> ExtractMany:
        """Extract from many items, and collect the results.

        Arguments, results and errors are those of `SIEClient.extract_many`. Iterating `items` holds up the event loop.
        """
        return await outcome_of_tasks(self._protocol.extract_many(model, items, settings), self._run)

    @keywords(ExtractManySettings)
    def extract_iter(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[ExtractManySettings]
    ) -> AsyncGenerator[ExtractResult | FailedItem, None]:
        """Extract from any number of items as `extract_many` does, and yield each result in the order of the items.

        Arguments, results and errors are those of `SIEClient.extract_iter`; stopping is as in `encode_iter`.
        """
        return pieces_of_tasks(self._protocol.extract_many(model, items, settings, "extract_iter"), self._run)

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

    async def create_pool(
        self,
        name: str,
        gpus: Mapping[str, int] | None = None,
        gpu_caps: Mapping[str, int] | None = None,
        bundle: str | None = None,
        minimum_worker_count: int | None = None,
        pinned_models: Sequence[str] | None = None,
        *,
        queue_pool: str | None = None,
    ) -> None:
        """Lease workers of a cluster: a resource pool, which serves nobody but requests with `gpu="name/profile"`.

        Arguments and errors are those of `SIEClient.create_pool`.
        """
        spec = spec_of(gpus, gpu_caps, bundle, minimum_worker_count, pinned_models, queue_pool)
        calls = self._protocol.pools
        self._pool = await self._run(calls.create(name, spec))
        await self._renewals.begin(name, calls.renewals(name))

    async def get_pool(self, name: str | None = None) -> PoolInfo | None:
        """Describe a resource pool, the one last created here where none is named; None where there is none.

        Raises:
            ValueError: No pool is named, and none was created here.
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.pools.get(name, self._pool))

    async def delete_pool(self, name: str | None = None) -> bool:
        """End a resource pool, the one last created here where none is named; whether there was one.

        Raises:
            PoolError: The server refused it.
            ValueError: No pool is named, and none was created here.
            SIEError: As `encode` does.
        """
        pool = name if name is not None else self._pool
        if pool is not None:
            await self._renewals.end(pool)
        return await self._run(self._protocol.pools.delete(name, self._pool))

    @keywords(CapacitySettings)
    async def get_capacity(self, **settings: Unpack[CapacitySettings]) -> CapacityInfo:
        """Tell what the workers behind a gateway can take, of one machine profile or of all.

        Raises:
            RequestError: `not_gateway`: the server is none.
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.get_capacity(settings))

    @keywords(AwaitSettings)
    async def wait_for_capacity(self, gpu: str, **settings: Unpack[AwaitSettings]) -> CapacityInfo:
        """Wait until a worker of a machine profile takes work and, where a model is named, has it loaded.

        Args:
            gpu: The machine profile.
            **settings: `model`, `timeout_s` and `poll_interval_s`. Without a model nothing is asked of the cluster but
                what it has: it starts no worker for that.

        Raises:
            ProvisioningError: None does within `timeout_s`.
            RequestError: `not_gateway`: the server is none.
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.wait_for_capacity(gpu, settings))

    @keywords(WatchSettings)
    async def watch(self, **settings: Unpack[WatchSettings]) -> AsyncGenerator[dict[str, Any], None]:
        """Watch a server or a cluster: yield what it says of itself, five times a second or once, until it ends.

        Leave the loop, or close what this returns, to stop.

        Args:
            **settings: `mode`: `worker` for a server's or an adapter process's state, `cluster` for that of a gateway's
                workers, `auto` for what the server is.

        Raises:
            SIEConnectionError: The server cannot be reached, or broke the connection.
            RequestError: The server has no such state to watch, or the key is not accepted.
            ValueError: There is no such mode.
        """
        send = await self._run(self._protocol.watch(settings))
        try:
            async with self._http.stream(
                send.method, send.url, headers=send.headers, timeout=transport.timeouts_of(send, self._timeouts)
            ) as answer:
                if answer.status_code != 101:
                    await answer.aread()
                if (refused := transport.response_to_upgrade(answer)) is not None:
                    raise self._protocol.refused(refused)
                line, frames = answer.extensions["network_stream"], Frames()
                while not frames.closed:
                    for told in frames.take(await line.read(transport.PIECE, self._timeouts.read)):
                        yield told
                    while frames.answers:
                        await line.write(frames.answers.pop(0), self._timeouts.write)
        except transport.BROKEN as error:
            raise transport.broken(error) from error

    async def aclose(self) -> None:
        """Close the connections, and renew no lease any more."""
        await self._renewals.end()
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
