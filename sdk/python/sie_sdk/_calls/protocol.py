"""The client without I/O: each call is a generator that yields what to send and how long to sleep.

The shells in `client` and `async_client` perform the actions; everything they could disagree on is decided here.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sie_sdk._answers.failures import CallFacts, read_failure, to_exception
from sie_sdk._answers.results import (
    read_encode,
    read_extract,
    read_health,
    read_model,
    read_models,
    read_score,
    read_tokens,
)
from sie_sdk._calls.batches import Ask, Batches
from sie_sdk._calls.cluster import capacity
from sie_sdk._calls.cluster.pools import PoolCalls
from sie_sdk._calls.cluster.websocket import handshake
from sie_sdk._calls.exchange import Offload, Operation, Response, Send, Sleep, TransportFailure
from sie_sdk._calls.keywords import filled
from sie_sdk._calls.many import AskScores, Queries, item_batches, score_batches
from sie_sdk._calls.retry import DEFAULT_BUDGET_S, Reach, Retries
from sie_sdk._requests.endpoint import resolve_api_key, resolve_base_url, shown
from sie_sdk._requests.writer import LARGE_BYTES, Writer, are_large, as_item, as_items
from sie_sdk.errors import RequestError, SIEError
from sie_sdk.many import EncodeMany, ExtractMany, FailedItem, RankedQuery, ScoreMany
from sie_sdk.settings import (
    AwaitSettings,
    CallSettings,
    CapacitySettings,
    EncodeManySettings,
    EncodeSettings,
    ExtractManySettings,
    ExtractSettings,
    LookupSettings,
    ScoreManySettings,
    ScoreSettings,
    TokenizeSettings,
    WaitSettings,
    WatchSettings,
)
from sie_sdk.types import (
    CapacityInfo,
    EncodeResult,
    ExtractResult,
    HealthInfo,
    ItemLike,
    ModelInfo,
    ScoreResult,
    Token,
    WatchMode,
    WireFormat,
)

log = logging.getLogger("sie_sdk")

Result = TypeVar("Result")

OK = frozenset({200})
MADE = frozenset({200, 201, 204})


@dataclass(frozen=True, slots=True)
class Protocol:
    """The calls of one client. The clocks and the random source are arguments for tests."""

    writer: Writer
    gpu: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of every call; a call's own options go over them, key by key."""
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.Random)
    reach: Reach = field(default_factory=Reach)

    @classmethod
    def create(
        cls,
        base_url: str | None,
        api_key: str | None,
        gpu: str | None,
        options: Mapping[str, Any] | None,
        wire_format: WireFormat,
    ) -> Protocol:
        """Make the protocol from a client's arguments and the environment.

        Raises:
            ValueError: No server is named, or an argument is none of the allowed.
            TypeError: The key or the machine profile is no string.
        """
        if wire_format not in ("msgpack", "json"):
            raise ValueError(f"wire_format is {wire_format!r}; allowed are 'msgpack' and 'json'")
        url = resolve_base_url(base_url)
        writer = Writer(url, resolve_api_key(api_key, url), wire_format)
        writer.headers(gpu, with_body=False)  # refuses what no header can carry
        return cls(writer, gpu, dict(options or {}))

    def encode(
        self, model: str, items: ItemLike | Sequence[ItemLike], settings: EncodeSettings
    ) -> Operation[EncodeResult | list[EncodeResult]]:
        """Encode one item or a list of them."""
        return (yield from _of_items(items, self._encoding(model, filled(EncodeSettings, settings, "encode"))))

    def encode_many(
        self, model: str, items: Iterable[ItemLike], settings: EncodeManySettings, call: str = "encode_many"
    ) -> Batches[EncodeResult | FailedItem, EncodeMany]:
        """Encode many items, for `encode_many` and `encode_iter`.

        Raises:
            TypeError: An argument is none, or `items` is a single item.
            ValueError: An argument is out of its bounds.
            ImportError: A bar is wanted and tqdm is not installed.
        """
        said = filled(EncodeManySettings, settings, call)
        return item_batches(items, self._encoding(model, said), EncodeMany, said)

    def score(
        self, model: str, query: ItemLike, items: ItemLike | Sequence[ItemLike], settings: ScoreSettings
    ) -> Operation[ScoreResult]:
        """Score items against a query.

        Raises:
            ValueError: `top_k` is below 1.
        """
        said = filled(ScoreSettings, settings, "score")
        top_k = said["top_k"]
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k is {top_k}; 1 is the least")
        ask = self._scoring(model, said)
        if are_large([query]) or are_large(items):
            yield Offload()
        result = yield from ask(as_item(query, "query"), as_items(items)[0])
        return {**result, "scores": result["scores"][:top_k]}

    def score_many(
        self, model: str, queries: Queries, settings: ScoreManySettings, call: str = "score_many"
    ) -> Batches[RankedQuery, ScoreMany]:
        """Score the documents of many queries, for `score_many` and `score_iter`.

        Raises:
            TypeError: An argument is none, or `queries` is a single item.
            ValueError: An argument is out of its bounds.
            ImportError: A bar is wanted and tqdm is not installed.
        """
        said = filled(ScoreManySettings, settings, call)
        return score_batches(model, queries, self._scoring(model, said), said)

    def extract(
        self, model: str, items: ItemLike | Sequence[ItemLike], settings: ExtractSettings
    ) -> Operation[ExtractResult | list[ExtractResult]]:
        """Extract from one item or a list of them."""
        return (yield from _of_items(items, self._extracting(model, filled(ExtractSettings, settings, "extract"))))

    def extract_many(
        self, model: str, items: Iterable[ItemLike], settings: ExtractManySettings, call: str = "extract_many"
    ) -> Batches[ExtractResult | FailedItem, ExtractMany]:
        """Extract from many items, for `extract_many` and `extract_iter`; errors are those of `encode_many`."""
        said = filled(ExtractManySettings, settings, call)
        return item_batches(items, self._extracting(model, said), ExtractMany, said)

    def tokenize(
        self, model: str, texts: str | Sequence[str], settings: TokenizeSettings
    ) -> Operation[list[Token] | list[list[Token]]]:
        """List the tokens of one text or a list of them."""
        said = filled(TokenizeSettings, settings, "tokenize")
        if not isinstance(texts, (str, list, tuple)):
            raise TypeError(f"texts is a {type(texts).__name__}; give a string or a list of strings")
        listed = [texts] if isinstance(texts, str) else list(texts)
        retries = self._retries(CallFacts(model, said["gpu"] or self.gpu), said)
        body = {"inputs": listed, "add_special_tokens": said["add_special_tokens"]}
        in_json = replace(self.writer, wire_format="json")
        url = self.writer.url("tei", model, "tokenize")
        headers = in_json.headers(retries.call.gpu, with_body=True)
        response = yield from self._post(in_json, url, headers, body, retries, said["timeout_s"])
        tokens = read_tokens(response, len(listed))
        return tokens[0] if isinstance(texts, str) else tokens

    def list_models(self, settings: LookupSettings) -> Operation[list[ModelInfo]]:
        """List the models the server knows."""
        return read_models((yield from self._get(settings, "list_models", "v1", "models")))

    def get_model(self, model: str, settings: LookupSettings) -> Operation[ModelInfo]:
        """Describe one model."""
        return read_model((yield from self._get(settings, "get_model", "v1", "models", model)))

    def health(self, settings: LookupSettings) -> Operation[HealthInfo]:
        """Describe the server."""
        return read_health((yield from self._get(settings, "health", "health")))

    @property
    def pools(self) -> PoolCalls:
        """The calls on resource pools."""

        def answer(send: Send) -> Operation[Response]:
            retries = Retries(CallFacts(), self.clock, self.rng, wait_for_capacity=False, reach=self.reach)
            return (yield from self._answer(send, retries, MADE))

        return PoolCalls(self.writer, answer)

    def get_capacity(self, settings: CapacitySettings) -> Operation[CapacityInfo]:
        """Tell what a gateway's workers can take."""
        said = filled(CapacitySettings, settings, "get_capacity")
        return (yield from capacity.get_capacity(lambda: self.health({"timeout_s": said["timeout_s"]}), said["gpu"]))

    def wait_for_capacity(self, gpu: str, settings: AwaitSettings) -> Operation[CapacityInfo]:
        """Wait until a worker of a machine profile takes work, and has a model loaded."""
        said = filled(AwaitSettings, settings, "wait_for_capacity")
        total_s = DEFAULT_BUDGET_S if said["timeout_s"] is None else said["timeout_s"]
        end = self.clock() + total_s
        left_s = lambda: end - self.clock()  # noqa: E731 - a name for the argument
        if said["model"] is not None:
            yield from capacity.warm_up(self._warm_ups(said["model"], gpu), left_s)
        return (yield from capacity.wait_for_capacity(lambda: self.health({}), gpu, left_s, said["poll_interval_s"]))

    def _warm_ups(self, model: str, gpu: str) -> Sequence[capacity.Call]:
        """Return a short call of each operation."""
        text, extracting = "warmup", ExtractSettings(gpu=gpu, labels=["warmup"])
        return (
            lambda left_s: self.encode(model, text, {"gpu": gpu, "provision_timeout_s": left_s}),
            lambda left_s: self.score(model, text, [text], {"gpu": gpu, "provision_timeout_s": left_s}),
            lambda left_s: self.extract(model, text, {**extracting, "provision_timeout_s": left_s}),
        )

    def watch(self, settings: WatchSettings) -> Operation[Send]:
        """Return what asks for the WebSocket that is watched.

        Raises:
            ValueError: There is no such mode.
        """
        said = filled(WatchSettings, settings, "watch")
        if (mode := said["mode"]) not in ("auto", "cluster", "worker"):
            raise ValueError(f"mode is {mode!r}; allowed are 'auto', 'cluster' and 'worker'")
        if mode == "auto":
            mode = yield from self._kind(said["timeout_s"])
        path = "cluster-status" if mode == "cluster" else "status"
        headers = self.writer.headers(with_body=False) | handshake()
        return Send("GET", self.writer.url("ws", path), headers, timeout_s=said["timeout_s"])

    def refused(self, response: Response) -> SIEError:
        """Make the error of an answer that is no WebSocket."""
        return to_exception(read_failure(response, self.wall_clock()), CallFacts())

    def _kind(self, timeout_s: float | None) -> Operation[WatchMode]:
        """Say what the server is; one without `/health` is a worker."""
        try:
            health = yield from self.health({"timeout_s": timeout_s})
        except RequestError as error:
            if error.status_code not in (200, 404):
                raise
            return "worker"
        return "cluster" if health.get("type") == "gateway" else "worker"

    def _encoding(self, model: str, said: EncodeSettings) -> Ask[EncodeResult]:
        output_types = said["output_types"]
        if isinstance(output_types, str):
            raise TypeError(f"output_types is the string {output_types!r}; give a list of output types")
        chosen = self._chosen(said)
        if said["is_query"] is not None:
            chosen["is_query"] = said["is_query"]
        params = _said(
            output_types=None if output_types is None else list(output_types),
            output_dtype=said["output_dtype"],
            instruction=said["instruction"],
            input_type=said["input_type"],
            dimensions=said["dimensions"],
            truncate=said["truncate"],
            options=chosen or None,
        )
        return self._asking("encode", model, params, said, chosen, read_encode)

    def _extracting(self, model: str, said: ExtractSettings) -> Ask[ExtractResult]:
        labels = said["labels"]
        if isinstance(labels, str):
            raise TypeError(f"labels is the string {labels!r}; give a list of labels")
        chosen = self._chosen(said)
        params = _said(
            labels=None if labels is None else list(labels),
            output_schema=said["output_schema"],
            instruction=said["instruction"],
            truncate=said["truncate"],
            options=chosen or None,
        )
        return self._asking("extract", model, params, said, chosen, read_extract)

    def _asking(
        self,
        operation: str,
        model: str,
        params: Mapping[str, Any],
        said: CallSettings,
        chosen: Mapping[str, Any],
        read: Callable[[Response, list[Any]], list[Result]],
    ) -> Ask[Result]:
        """Return what has each of several items answered.

        Raises:
            ValueError: The model's id would name another route, or no header can carry an argument.
        """
        url, headers = self.writer.url("v1", operation, model), self._headers(said)

        def ask(items: Sequence[Mapping[str, Any]]) -> Operation[list[Result]]:
            body = {"items": items, "params": params} if params else {"items": items}
            response = yield from self._infer(url, headers, model, body, said, chosen)
            return read(response, [item.get("id") for item in items])

        return ask

    def _scoring(self, model: str, said: CallSettings) -> AskScores:
        """Return what has items scored against a query; errors are those of `_asking`."""
        url, headers, chosen = self.writer.url("v1", "score", model), self._headers(said), self._chosen(said)
        params = _said(instruction=said["instruction"], truncate=said["truncate"], options=chosen or None)

        def ask(query: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Operation[ScoreResult]:
            body = {"query": query, "items": items, **params}
            return read_score((yield from self._infer(url, headers, model, body, said, chosen)))

        return ask

    def _chosen(self, said: CallSettings) -> dict[str, Any]:
        """Lay a call's options over the client's."""
        return {**self.options, **(said["options"] or {})}

    def _headers(self, said: CallSettings) -> dict[str, str]:
        return self.writer.headers(said["gpu"] or self.gpu, said["priority"], with_body=True)

    def _infer(
        self,
        url: str,
        headers: Mapping[str, str],
        model: str,
        body: Mapping[str, Any],
        said: CallSettings,
        chosen: Mapping[str, Any],
    ) -> Operation[Response]:
        lora = chosen.get("lora") or chosen.get("lora_id")
        call = CallFacts(model, said["gpu"] or self.gpu, lora if isinstance(lora, str) else None)
        retries = self._retries(call, said, said["max_oom_retries"])
        return (yield from self._post(self.writer, url, headers, body, retries, said["timeout_s"]))

    def _retries(self, call: CallFacts, said: WaitSettings, max_oom_retries: int = 0) -> Retries:
        wait, budget_s = said["wait_for_capacity"], said["provision_timeout_s"]
        return Retries(call, self.clock, self.rng, wait, budget_s, max_oom_retries, self.reach)

    def _post(
        self,
        writer: Writer,
        url: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        retries: Retries,
        timeout_s: float | None,
    ) -> Operation[Response]:
        send = Send("POST", url, headers, writer.body(body), timeout_s)
        return (yield from self._answer(send, retries))

    def _get(self, settings: LookupSettings, call: str, *path: str) -> Operation[Response]:
        timeout_s = filled(LookupSettings, settings, call)["timeout_s"]
        headers = self.writer.headers(with_body=False)
        send = Send("GET", self.writer.url(*path), headers, timeout_s=timeout_s)
        retries = Retries(CallFacts(), self.clock, self.rng, wait_for_capacity=False, reach=self.reach)
        return (yield from self._answer(send, retries))

    def _answer(self, send: Send, retries: Retries, done: frozenset[int] = OK) -> Operation[Response]:
        """Send until the answer is a result, of a status of `done`, or the retries raise."""
        lost, base_url = False, shown(self.writer.base_url)
        url = base_url + send.url.removeprefix(self.writer.base_url)
        while True:
            outcome, level = (yield send), logging.INFO
            if isinstance(outcome, Response):
                retries.reach.reached = True
                if outcome.status in done:
                    if len(outcome.body) > LARGE_BYTES:
                        yield Offload()
                    return outcome
                failure = read_failure(outcome, self.wall_clock())
                pause, reason = retries.after_failure(failure), failure.message
            elif isinstance(outcome, TransportFailure):
                pause, reason = retries.after_transport(outcome, base_url), repr(outcome.error)
                level, lost = (logging.INFO if lost else logging.WARNING), True
            else:
                raise TypeError(f"a Send is answered with a Response or a TransportFailure, not {outcome!r}")
            log.log(level, "trying %s again in %.1f s: %s", url, pause, reason)
            yield Sleep(pause)


def _of_items(items: ItemLike | Sequence[ItemLike], ask: Ask[Result]) -> Operation[Result | list[Result]]:
    """Have each item answered, and give one result where one item was given."""
    if are_large(items):
        yield Offload()
    maps, single = as_items(items)
    results = yield from ask(maps)
    return results[0] if single else results


def _said(**fields: Any) -> dict[str, Any]:
    """Keep the fields that say something."""
    return {name: value for name, value in fields.items() if value is not None}
