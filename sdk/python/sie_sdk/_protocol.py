"""The client without I/O: each call is a generator that yields what to send and how long to sleep.

The shells in `client` and `async_client` perform the actions; everything they could disagree on is decided here.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sie_sdk._endpoint import resolve_api_key, resolve_base_url
from sie_sdk._exchange import Operation, Response, Send, Sleep, TransportFailure
from sie_sdk._failures import CallFacts, read_failure
from sie_sdk._requests import Writer, as_item, as_items
from sie_sdk._results import read_encode, read_extract, read_model, read_models, read_score
from sie_sdk._retry import Reach, Retries
from sie_sdk.types import (
    EncodeResult,
    ExtractResult,
    InputType,
    ItemLike,
    ModelInfo,
    OutputDtype,
    OutputType,
    ScoreResult,
    Truncate,
    WireFormat,
)

log = logging.getLogger("sie_sdk")

Result = TypeVar("Result")


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
        """
        if wire_format not in ("msgpack", "json"):
            raise ValueError(f"wire_format is {wire_format!r}; allowed are 'msgpack' and 'json'")
        url = resolve_base_url(base_url)
        return cls(Writer(url, resolve_api_key(api_key, url), wire_format), gpu, dict(options or {}))

    def encode(
        self,
        model: str,
        items: ItemLike | Sequence[ItemLike],
        *,
        output_types: Sequence[OutputType] | None,
        instruction: str | None,
        output_dtype: OutputDtype | None,
        is_query: bool | None,
        options: Mapping[str, Any] | None,
        gpu: str | None,
        wait_for_capacity: bool,
        provision_timeout_s: float | None,
        max_oom_retries: int,
        input_type: InputType | None,
        dimensions: int | None,
        truncate: Truncate | None,
    ) -> Operation[EncodeResult | list[EncodeResult]]:
        """Encode one item or a list of them."""
        if isinstance(output_types, str):
            raise TypeError(f"output_types is the string {output_types!r}; give a list of output types")
        chosen = self._chosen(options)
        if is_query is not None:
            chosen["is_query"] = is_query
        params = _said(
            output_types=None if output_types is None else list(output_types),
            output_dtype=output_dtype,
            instruction=instruction,
            input_type=input_type,
            dimensions=dimensions,
            truncate=truncate,
            options=chosen or None,
        )
        retries = self._retries(model, chosen, gpu, wait_for_capacity, provision_timeout_s, max_oom_retries)
        return (yield from self._of_items("encode", items, params, retries, read_encode))

    def score(
        self,
        model: str,
        query: ItemLike,
        items: ItemLike | Sequence[ItemLike],
        *,
        instruction: str | None,
        options: Mapping[str, Any] | None,
        gpu: str | None,
        wait_for_capacity: bool,
        provision_timeout_s: float | None,
        max_oom_retries: int,
        truncate: Truncate | None,
    ) -> Operation[ScoreResult]:
        """Score items against a query."""
        chosen = self._chosen(options)
        body = {
            "query": as_item(query, "query"),
            "items": as_items(items)[0],
            **_said(instruction=instruction, truncate=truncate, options=chosen or None),
        }
        retries = self._retries(model, chosen, gpu, wait_for_capacity, provision_timeout_s, max_oom_retries)
        return read_score((yield from self._post("score", body, retries)))

    def extract(
        self,
        model: str,
        items: ItemLike | Sequence[ItemLike],
        *,
        labels: Sequence[str] | None,
        output_schema: Mapping[str, Any] | None,
        instruction: str | None,
        options: Mapping[str, Any] | None,
        gpu: str | None,
        wait_for_capacity: bool,
        provision_timeout_s: float | None,
        max_oom_retries: int,
        truncate: Truncate | None,
    ) -> Operation[ExtractResult | list[ExtractResult]]:
        """Extract from one item or a list of them."""
        if isinstance(labels, str):
            raise TypeError(f"labels is the string {labels!r}; give a list of labels")
        chosen = self._chosen(options)
        params = _said(
            labels=None if labels is None else list(labels),
            output_schema=output_schema,
            instruction=instruction,
            truncate=truncate,
            options=chosen or None,
        )
        retries = self._retries(model, chosen, gpu, wait_for_capacity, provision_timeout_s, max_oom_retries)
        return (yield from self._of_items("extract", items, params, retries, read_extract))

    def list_models(self) -> Operation[list[ModelInfo]]:
        """List the models the server knows."""
        return read_models((yield from self._get("v1", "models")))

    def get_model(self, model: str) -> Operation[ModelInfo]:
        """Describe one model."""
        return read_model((yield from self._get("v1", "models", model)))

    def _chosen(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Lay a call's options over the client's."""
        return {**self.options, **(options or {})}

    def _retries(
        self,
        model: str,
        chosen: Mapping[str, Any],
        gpu: str | None,
        wait_for_capacity: bool,
        provision_timeout_s: float | None,
        max_oom_retries: int,
    ) -> Retries:
        lora = chosen.get("lora") or chosen.get("lora_id")
        return Retries(
            CallFacts(model, gpu or self.gpu, lora if isinstance(lora, str) else None),
            self.clock,
            self.rng,
            wait_for_capacity,
            provision_timeout_s,
            max_oom_retries,
            self.reach,
        )

    def _of_items(
        self,
        operation: str,
        items: ItemLike | Sequence[ItemLike],
        params: Mapping[str, Any],
        retries: Retries,
        read: Callable[[Response, list[Any]], list[Result]],
    ) -> Operation[Result | list[Result]]:
        """Have each item answered, and give one result where one item was given."""
        maps, single = as_items(items)
        body = {"items": maps, "params": params} if params else {"items": maps}
        response = yield from self._post(operation, body, retries)
        results = read(response, [item.get("id") for item in maps])
        return results[0] if single else results

    def _post(self, operation: str, body: Mapping[str, Any], retries: Retries) -> Operation[Response]:
        """Send a body to an operation of the model that the retries are of."""
        send = Send(
            "POST",
            self.writer.url("v1", operation, retries.call.model or ""),
            self.writer.headers(retries.call.gpu, with_body=True),
            self.writer.body(body),
        )
        return (yield from self._answer(send, retries))

    def _get(self, *path: str) -> Operation[Response]:
        send = Send("GET", self.writer.url(*path), self.writer.headers(with_body=False))
        retries = Retries(CallFacts(), self.clock, self.rng, wait_for_capacity=False, reach=self.reach)
        return (yield from self._answer(send, retries))

    def _answer(self, send: Send, retries: Retries) -> Operation[Response]:
        """Send until the answer is a result or the retries raise."""
        lost = False
        while True:
            outcome, level = (yield send), logging.INFO
            if isinstance(outcome, Response):
                retries.reach.reached = True
                if outcome.status == 200:
                    return outcome
                failure = read_failure(outcome, self.wall_clock())
                pause, reason = retries.after_failure(failure), failure.message
            elif isinstance(outcome, TransportFailure):
                pause, reason = retries.after_transport(outcome, self.writer.base_url), repr(outcome.error)
                level, lost = (logging.INFO if lost else logging.WARNING), True
            else:
                raise TypeError(f"a Send is answered with a Response or a TransportFailure, not {outcome!r}")
            log.log(level, "trying %s again in %.1f s: %s", send.url, pause, reason)
            yield Sleep(pause)


def _said(**fields: Any) -> dict[str, Any]:
    """Keep the fields that say something."""
    return {name: value for name, value in fields.items() if value is not None}
