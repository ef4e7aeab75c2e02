"""The synchronous client: a thin shell that performs what the protocol asks for.

It decides nothing: requests, retries and results are the protocol's, on which the asynchronous client stands
too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from sie_sdk._calls import transport
from sie_sdk._calls.cluster import renewing
from sie_sdk._calls.cluster.pools import spec_of
from sie_sdk._calls.cluster.websocket import Frames
from sie_sdk._calls.exchange import Done, Operation, Outcome, Response, Send, Sleep, TransportFailure, step
from sie_sdk._calls.keywords import keywords
from sie_sdk._calls.many import Queries
from sie_sdk._calls.parallel import outcome_on_threads, pieces_on_threads
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


class SIEClient:
    """A client of one SIE server. Threads may share it; close it, or use it in a `with` block.

    Args:
        base_url: The server, e.g. `http://localhost:8080`; the environment's `SIE_BASE_URL` where it is not given.
        timeout_s: Connect and read timeout of one attempt in seconds; 10 and 150 by default.
        connect_timeout_s: The connect timeout alone.
        read_timeout_s: The read timeout alone.
        api_key: The bearer key; `SIE_API_KEY` where it is not given and the server is that of `SIE_BASE_URL`.
        gpu: The default machine profile of calls, or `pool/profile`.
        options: Default options of calls; a call's own go over them.
        max_connections: How many connections to keep; 100 by default.
        wire_format: `msgpack`, in which arrays travel as bytes, or `json`.
        http_client: An httpx client to use in place of an own one; its owner closes it.

    Raises:
        ValueError: No server is named, or its address is malformed.
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
        http_client: httpx.Client | None = None,
    ) -> None:
        self._protocol = Protocol.create(base_url, api_key, gpu, options, wire_format)
        self._timeouts = transport.timeouts(timeout_s, connect_timeout_s, read_timeout_s)
        self._http = http_client or httpx.Client(**transport.settings(max_connections))
        self._owns_http = http_client is None
        self._renewals = renewing.Threads(self._run)
        self._pool: str | None = None

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self._protocol.writer.base_url

    # A str is a sequence of str too: the first overload that fits is the one meant.
    @overload
    def encode(  # type: ignore[overload-overlap]
        self, model: str, items: ItemLike, **settings: Unpack[EncodeSettings]
    ) -> EncodeResult: ...

    @overload
    def encode(
        self, model: str, items: Sequence[ItemLike], **settings: Unpack[EncodeSettings]
    ) -> list[EncodeResult]: ...

    @keywords(EncodeSettings)
    def encode(
        self, model: str, items: ItemLike | Sequence[ItemLike], **settings: Unpack[EncodeSettings]
    ) -> EncodeResult | list[EncodeResult]:
        """Encode one item, or a list of them, into vectors; results come in the order of the items.

        Args:
            model: The model's id, `org/name` or `org/name:profile`.
            items: A text, an `Item`, a dict of its shape, or a list of those.
            output_types: Of `dense`, `sparse`, `multivector`; the model's own choice by default.
            instruction: The instruction the model is prompted with.
            output_dtype: `float32` (the default), `float16`, `int8`, `uint8`, `binary` or `ubinary`.
            is_query: Whether the items are queries; another spelling of `input_type`.
            options: The model family's own options, e.g. `{"profile": "…"}`.
            gpu: The machine profile to run on, or `pool/profile`.
            wait_for_capacity: Whether to wait while the server is out of reach or has no worker for the model yet.
            provision_timeout_s: The budget of all waits of this call in seconds; 900 by default, and 10 for a server
                that never answered this client.
            max_oom_retries: How often to try again after the device ran out of memory.
            input_type: `query` or `document`, which selects the model's prompt; the plain text by default.
            dimensions: One of the model's Matryoshka sizes for `dense`; the native one by default.
            truncate: Which end of a long text to cut, `end` or `start`, or `error` to refuse it; what was cut is told
                in the result's `truncated`.
            timeout_s: The connect and read timeout of each attempt in seconds, in place of the client's.
            priority: `interactive` for a larger share of the device where others wait, `bulk` for a smaller one; the
                same share as theirs by default.

        Raises:
            RequestError: The server refused the request; `code` and `param` say why.
            InputTooLongError: A text is too long and `truncate` is `error`.
            RateLimitError: The server's rate limit outlasted the budget.
            ModelLoadingError: The model was still loading when the budget ended.
            ModelLoadFailedError: The model cannot be loaded.
            ProvisioningError: No worker served the model within the budget.
            ResourceExhaustedError: The device had no memory for the request.
            ServerError: The server failed otherwise.
            SIEConnectionError: No answer came.
            ValueError: An argument has no form on the wire.
            TypeError: `items` holds something else than items.
        """
        return self._run(self._protocol.encode(model, items, settings))

    @keywords(EncodeManySettings)
    def encode_many(self, model: str, items: Iterable[ItemLike], **settings: Unpack[EncodeManySettings]) -> EncodeMany:
        """Encode many items, in requests of `batch_size` of which `parallel` are in flight, and collect the results.

        All results are in memory when it returns: four bytes for each dimension of a float32 vector and some 0.5 kB
        an item beside, so 2 GB for a million vectors of 384 dimensions. `encode_iter` holds those of a few requests.

        A request that fails for one of its items is sent again without it. Items that fail are in `failed` of the
        result, and their places in `results` are None. A failure that concerns no item ends the call: what was
        answered is kept, and the rest is told with that failure.

        Args:
            model: The model's id.
            items: What `encode` takes a list of, or anything else that yields such items; it is read as they are sent.
            **settings: Those of `encode`, and `batch_size` (64), `parallel` (4) and `progress`: whether to show a bar
                of tqdm, by default where it is installed and the output is a terminal.

        Raises:
            SIEError: Nothing was encoded, and the failure concerns no item.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `items` is a single item, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return outcome_on_threads(self._protocol.encode_many(model, items, settings), self._run)

    @keywords(EncodeManySettings)
    def encode_iter(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[EncodeManySettings]
    ) -> Generator[EncodeResult | FailedItem, None, None]:
        """Encode any number of items as `encode_many` does, and yield each result in the order of the items.

        Items are read, and results held, for twice `parallel` requests at most. In the place of an item that fails its
        `FailedItem` is yielded. Leave the loop to stop: it waits for the requests in flight.

        Args:
            model: The model's id.
            items: As in `encode_many`.
            **settings: Those of `encode_many`.

        Raises:
            SIEError: A failure that concerns no item, in the place of the first request it left unanswered.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `items` is a single item, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return pieces_on_threads(self._protocol.encode_many(model, items, settings, "encode_iter"), self._run)

    @keywords(ScoreSettings)
    def score(
        self, model: str, query: ItemLike, items: ItemLike | Sequence[ItemLike], **settings: Unpack[ScoreSettings]
    ) -> ScoreResult:
        """Score items against a query and rank them, the best first.

        Any model that encodes scores by its vectors too: multi-vectors by MaxSim, dense and sparse ones by the cosine
        or dot product, whichever the model's files say; `options={"output_types": ["dense"]}` chooses.

        Args:
            model: The model's id.
            query: A text, an `Item` or a dict of its shape.
            items: The documents, 1 000 at most; a single one is a list of one. Those without an `id` are called
                `item-<place in the list>` in the result.
            instruction: What the query is for, where the model takes it.
            options: The model family's own options.
            top_k: How many of the best are returned; all by default.
            gpu, wait_for_capacity, provision_timeout_s, max_oom_retries, timeout_s, priority: As in `encode`.
            truncate: As in `encode`; of a query and a document read together, the document is cut.

        Raises:
            SIEError: As `encode` does.
            ValueError: An argument has no form on the wire, or `top_k` is below 1.
            TypeError: `query` or `items` holds something else than items.
        """
        return self._run(self._protocol.score(model, query, items, settings))

    @keywords(ScoreManySettings)
    def score_many(self, model: str, queries: Queries, **settings: Unpack[ScoreManySettings]) -> ScoreMany:
        """Score the documents of each of many queries, which may be more than 1 000, and collect the rankings.

        All rankings are in memory when it returns, some 0.3 kB for each document. `score_iter` holds those of a few
        queries.

        Requests, failures and the bar are as in `encode_many`: `failed` tells documents, and a query that fails tells
        all of its own.

        Args:
            model: The model's id.
            queries: Pairs of a query and the list of its documents, or anything else that yields such pairs.
            **settings: Those of `score`, and `batch_size`, `parallel` and `progress` as in `encode_many`.

        Raises:
            SIEError: Nothing was scored, and the failure concerns no document.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `queries` is no list of pairs, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return outcome_on_threads(self._protocol.score_many(model, queries, settings), self._run)

    @keywords(ScoreManySettings)
    def score_iter(
        self, model: str, queries: Queries, **settings: Unpack[ScoreManySettings]
    ) -> Generator[RankedQuery, None, None]:
        """Score as `score_many` does any number of queries, and yield the ranking of each, in their order.

        Queries are read, and scores held, for twice `parallel` requests at most, and for the query they are of. Leave
        the loop to stop: it waits for the requests in flight.

        Args:
            model: The model's id.
            queries: As in `score_many`.
            **settings: Those of `score_many`.

        Raises:
            SIEError: A failure that concerns no document, in the place of the first query it left unanswered.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `queries` is no list of pairs, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return pieces_on_threads(self._protocol.score_many(model, queries, settings, "score_iter"), self._run)

    @overload
    def extract(  # type: ignore[overload-overlap]
        self, model: str, items: ItemLike, **settings: Unpack[ExtractSettings]
    ) -> ExtractResult: ...

    @overload
    def extract(
        self, model: str, items: Sequence[ItemLike], **settings: Unpack[ExtractSettings]
    ) -> list[ExtractResult]: ...

    @keywords(ExtractSettings)
    def extract(
        self, model: str, items: ItemLike | Sequence[ItemLike], **settings: Unpack[ExtractSettings]
    ) -> ExtractResult | list[ExtractResult]:
        """Extract entities, relations, classes, objects or data from one item, or a list of them, in their order.

        `start` and `end` of an entity count the characters of the item's text, as Python does: the entity's text is
        `text[start:end]`.

        Args:
            model: The model's id.
            items: A text, an `Item`, a dict of its shape, or a list of those.
            labels: What to look for; models whose weights decide that take none.
            output_schema: A JSON Schema of the result's `data`, for models that take one.
            instruction: What is wanted, in words, for models that take it.
            options: The model family's own options, e.g. `{"threshold": 0.3}`.
            gpu, wait_for_capacity, provision_timeout_s, max_oom_retries, timeout_s, priority, truncate: As in `encode`.

        Raises:
            SIEError: As `encode` does.
            ValueError: An argument has no form on the wire.
            TypeError: `items` holds something else than items, or `labels` is a single string.
        """
        return self._run(self._protocol.extract(model, items, settings))

    @keywords(ExtractManySettings)
    def extract_many(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[ExtractManySettings]
    ) -> ExtractMany:
        """Extract from many items, and collect the results; `extract_iter` holds those of a few requests.

        Requests, failures and the bar are as in `encode_many`.

        Args:
            model: The model's id.
            items: As in `encode_many`.
            **settings: Those of `extract`, and `batch_size`, `parallel` and `progress` as in `encode_many`.

        Raises:
            SIEError: Nothing was extracted, and the failure concerns no item.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `items` is a single item, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return outcome_on_threads(self._protocol.extract_many(model, items, settings), self._run)

    @keywords(ExtractManySettings)
    def extract_iter(
        self, model: str, items: Iterable[ItemLike], **settings: Unpack[ExtractManySettings]
    ) -> Generator[ExtractResult | FailedItem, None, None]:
        """Extract from any number of items as `extract_many` does, and yield each result in the order of the items.

        What is held, the place of failed items and stopping are as in `encode_iter`.

        Args:
            model: The model's id.
            items: As in `encode_many`.
            **settings: Those of `extract_many`.

        Raises:
            SIEError: A failure that concerns no item, in the place of the first request it left unanswered.
            ValueError: An argument has no form on the wire, or is out of its bounds.
            TypeError: `items` is a single item, or an argument is none.
            ImportError: `progress` is true and tqdm is not installed.
        """
        return pieces_on_threads(self._protocol.extract_many(model, items, settings, "extract_iter"), self._run)

    @overload
    def tokenize(self, model: str, texts: str, **settings: Unpack[TokenizeSettings]) -> list[Token]: ...

    @overload
    def tokenize(
        self, model: str, texts: list[str] | tuple[str, ...], **settings: Unpack[TokenizeSettings]
    ) -> list[list[Token]]: ...

    @keywords(TokenizeSettings)
    def tokenize(
        self, model: str, texts: str | list[str] | tuple[str, ...], **settings: Unpack[TokenizeSettings]
    ) -> list[Token] | list[list[Token]]:
        """List the tokens of one text, or of each of a list, as the model's own tokenizer makes them; no model runs.

        Texts are neither cut nor prompted.

        Args:
            model: The model's id.
            texts: A text or a list of them; altogether 128 KiB at most.
            **settings: `add_special_tokens`, whether those around a text are listed (they are); `gpu`,
                `wait_for_capacity`, `provision_timeout_s` and `timeout_s` as in `encode`.

        Raises:
            RequestError: The server refused the request, or the model has no tokenizer.
            SIEError: As `encode` does.
            TypeError: `texts` is neither, or an argument is none.
        """
        return self._run(self._protocol.tokenize(model, texts, settings))

    @keywords(LookupSettings)
    def health(self, **settings: Unpack[LookupSettings]) -> HealthInfo:
        """Describe the server: whether it is well, and the models it holds. It is asked once.

        Raises:
            SIEError: As `encode` does.
        """
        return self._run(self._protocol.health(settings))

    @keywords(LookupSettings)
    def list_models(self, **settings: Unpack[LookupSettings]) -> list[ModelInfo]:
        """List the models the server knows.

        Raises:
            SIEError: As `encode` does.
        """
        return self._run(self._protocol.list_models(settings))

    @keywords(LookupSettings)
    def get_model(self, model: str, **settings: Unpack[LookupSettings]) -> ModelInfo:
        """Describe one model.

        Raises:
            RequestError: The server knows no such model; the message offers near names.
            SIEError: As `encode` does.
        """
        return self._run(self._protocol.get_model(model, settings))

    def create_pool(
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

        The lease is renewed every minute, in the background, until the client is closed; some twenty minutes later it
        ends. A pool that is there is changed. It is ready once `get_pool` tells the state `active`.

        Args:
            name: The pool's name; case does not count.
            gpus: How many GPUs of which machine profile.
            gpu_caps: At most so many of a machine profile.
            bundle: The bundle whose workers are wanted; any by default.
            minimum_worker_count: How many workers at least; one by default where `gpus` is left out.
            pinned_models: Models that the pool's workers load and keep.
            queue_pool: The queue pool whose workers are wanted; any by default.

        Raises:
            PoolError: The server refused it: a profile or model it does not know, or no right to.
            ValueError: The name is none, or fewer than no workers are asked for.
            SIEError: As `encode` does.
        """
        spec = spec_of(gpus, gpu_caps, bundle, minimum_worker_count, pinned_models, queue_pool)
        calls = self._protocol.pools
        self._pool = self._run(calls.create(name, spec))
        self._renewals.begin(name, calls.renewals(name))

    def get_pool(self, name: str | None = None) -> PoolInfo | None:
        """Describe a resource pool, the one last created here where none is named; None where there is none.

        Raises:
            ValueError: No pool is named, and none was created here.
            SIEError: As `encode` does.
        """
        return self._run(self._protocol.pools.get(name, self._pool))

    def delete_pool(self, name: str | None = None) -> bool:
        """End a resource pool, the one last created here where none is named; whether there was one.

        Raises:
            PoolError: The server refused it.
            ValueError: No pool is named, and none was created here.
            SIEError: As `encode` does.
        """
        pool = name if name is not None else self._pool
        if pool is not None:
            self._renewals.end(pool)
        return self._run(self._protocol.pools.delete(name, self._pool))

    @keywords(CapacitySettings)
    def get_capacity(self, **settings: Unpack[CapacitySettings]) -> CapacityInfo:
        """Tell what the workers behind a gateway can take, of one machine profile or of all.

        Raises:
            RequestError: `not_gateway`: the server is none.
            SIEError: As `encode` does.
        """
        return self._run(self._protocol.get_capacity(settings))

    @keywords(AwaitSettings)
    def wait_for_capacity(self, gpu: str, **settings: Unpack[AwaitSettings]) -> CapacityInfo:
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
        return self._run(self._protocol.wait_for_capacity(gpu, settings))

    @keywords(WatchSettings)
    def watch(self, **settings: Unpack[WatchSettings]) -> Generator[dict[str, Any], None, None]:
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
        send = self._run(self._protocol.watch(settings))
        try:
            with self._http.stream(
                send.method, send.url, headers=send.headers, timeout=transport.timeouts_of(send, self._timeouts)
            ) as answer:
                if answer.status_code != 101:
                    answer.read()
                if (refused := transport.response_to_upgrade(answer)) is not None:
                    raise self._protocol.refused(refused)
                line, frames = answer.extensions["network_stream"], Frames()
                while not frames.closed:
                    yield from frames.take(line.read(transport.PIECE, self._timeouts.read))
                    while frames.answers:
                        line.write(frames.answers.pop(0), self._timeouts.write)
        except transport.BROKEN as error:
            raise transport.broken(error) from error

    def close(self) -> None:
        """Close the connections, and renew no lease any more."""
        self._renewals.end()
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, operation: Operation[Result], pause: Callable[[float], None] = time.sleep) -> Result:
        outcome: Outcome = None
        while not isinstance(action := step(operation, outcome), Done):
            outcome = None
            if isinstance(action, Send):
                outcome = self._exchange(action)
            elif isinstance(action, Sleep):
                pause(action.seconds)
        return action.result

    def _exchange(self, send: Send) -> Response | TransportFailure:
        timeouts = transport.timeouts_of(send, self._timeouts)
        try:
            answer = self._http.request(
                send.method, send.url, headers=send.headers, content=send.body, timeout=timeouts
            )
        except httpx.HTTPError as error:
            return transport.failure(error)
        return transport.response(answer)
