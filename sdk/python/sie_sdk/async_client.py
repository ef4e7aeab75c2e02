"""The asynchronous client: a thin shell that performs what the protocol asks for.

It decides nothing: requests, retries and results are the protocol's, on which the synchronous client stands
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from sie_sdk import _transport
from sie_sdk._exchange import Operation, Outcome, Response, Send, Sleep, TransportFailure
from sie_sdk._protocol import Protocol
from sie_sdk.types import (
    EncodeResult,
    EncodeSettings,
    ExtractResult,
    ExtractSettings,
    InputType,
    ItemLike,
    ModelInfo,
    OutputDtype,
    OutputType,
    ScoreResult,
    Truncate,
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
        self._timeouts = _transport.timeouts(timeout_s, connect_timeout_s, read_timeout_s)
        self._http = http_client or httpx.AsyncClient(**_transport.settings(max_connections))
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

    async def encode(
        self,
        model: str,
        items: ItemLike | Sequence[ItemLike],
        *,
        output_types: Sequence[OutputType] | None = None,
        instruction: str | None = None,
        output_dtype: OutputDtype | None = None,
        is_query: bool | None = None,
        options: Mapping[str, Any] | None = None,
        gpu: str | None = None,
        wait_for_capacity: bool = True,
        provision_timeout_s: float | None = None,
        max_oom_retries: int = 3,
        input_type: InputType | None = None,
        dimensions: int | None = None,
        truncate: Truncate | None = None,
    ) -> EncodeResult | list[EncodeResult]:
        """Encode one item, or a list of them, into vectors; results come in the order of the items.

        Arguments, results and errors are those of `SIEClient.encode`.
        """
        operation = self._protocol.encode(
            model,
            items,
            output_types=output_types,
            instruction=instruction,
            output_dtype=output_dtype,
            is_query=is_query,
            options=options,
            gpu=gpu,
            wait_for_capacity=wait_for_capacity,
            provision_timeout_s=provision_timeout_s,
            max_oom_retries=max_oom_retries,
            input_type=input_type,
            dimensions=dimensions,
            truncate=truncate,
        )
        return await self._run(operation)

    async def score(
        self,
        model: str,
        query: ItemLike,
        items: ItemLike | Sequence[ItemLike],
        *,
        instruction: str | None = None,
        options: Mapping[str, Any] | None = None,
        gpu: str | None = None,
        wait_for_capacity: bool = True,
        provision_timeout_s: float | None = None,
        max_oom_retries: int = 3,
        truncate: Truncate | None = None,
    ) -> ScoreResult:
        """Score items against a query and rank them, the best first.

        Arguments, results and errors are those of `SIEClient.score`.
        """
        operation = self._protocol.score(
            model,
            query,
            items,
            instruction=instruction,
            options=options,
            gpu=gpu,
            wait_for_capacity=wait_for_capacity,
            provision_timeout_s=provision_timeout_s,
            max_oom_retries=max_oom_retries,
            truncate=truncate,
        )
        return await self._run(operation)

    @overload
    async def extract(  # type: ignore[overload-overlap]
        self, model: str, items: ItemLike, **settings: Unpack[ExtractSettings]
    ) -> ExtractResult: ...

    @overload
    async def extract(
        self, model: str, items: Sequence[ItemLike], **settings: Unpack[ExtractSettings]
    ) -> list[ExtractResult]: ...

    async def extract(
        self,
        model: str,
        items: ItemLike | Sequence[ItemLike],
        *,
        labels: Sequence[str] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        instruction: str | None = None,
        options: Mapping[str, Any] | None = None,
        gpu: str | None = None,
        wait_for_capacity: bool = True,
        provision_timeout_s: float | None = None,
        max_oom_retries: int = 3,
        truncate: Truncate | None = None,
    ) -> ExtractResult | list[ExtractResult]:
        """Extract from one item, or a list of them; results come in the order of the items.

        Arguments, results and errors are those of `SIEClient.extract`.
        """
        operation = self._protocol.extract(
            model,
            items,
            labels=labels,
            output_schema=output_schema,
            instruction=instruction,
            options=options,
            gpu=gpu,
            wait_for_capacity=wait_for_capacity,
            provision_timeout_s=provision_timeout_s,
            max_oom_retries=max_oom_retries,
            truncate=truncate,
        )
        return await self._run(operation)

    async def list_models(self) -> list[ModelInfo]:
        """List the models the server knows.

        Raises:
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.list_models())

    async def get_model(self, model: str) -> ModelInfo:
        """Describe one model.

        Raises:
            RequestError: The server knows no such model; the message offers near names.
            SIEError: As `encode` does.
        """
        return await self._run(self._protocol.get_model(model))

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
        outcome: Outcome = None
        while True:
            try:
                action = operation.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(action, Sleep):
                await asyncio.sleep(action.seconds)
                outcome = None
            else:
                outcome = await self._exchange(action)

    async def _exchange(self, send: Send) -> Response | TransportFailure:
        try:
            answer = await self._http.request(
                send.method, send.url, headers=send.headers, content=send.body, timeout=self._timeouts
            )
        except httpx.HTTPError as error:
            return _transport.failure(error)
        return _transport.response(answer)
