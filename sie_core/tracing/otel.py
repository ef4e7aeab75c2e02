"""Records traces as spans of OpenTelemetry: a request is sampled first, and its spans are made when it has ended."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sie_core import __version__
from sie_core.contracts import Trace
from sie_core.contracts.backend.tracing import Begun
from sie_core.settings import SettingsError

CLOSE_S: Final = 3.0
"""Seconds in which the last spans are sent while the process ends: a receiver may be away."""
_SCOPE: Final = InstrumentationScope("sie_core", __version__)
_SAMPLERS: Final = ("always_on", "always_off", "traceidratio")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_PREFIX: Final = "sie."


class OtelTracer:
    """Gives the spans of sampled requests to a processor.

    Args:
        processor: Sends spans; it must bound what waits, and never block.
        sampler: Chooses the requests.
        resource: What the spans are of.
    """

    def __init__(
        self, processor: SpanProcessor, sampler: Sampler = ALWAYS_ON, resource: Resource | None = None
    ) -> None:
        self._processor, self._sampler = processor, sampler
        self._resource = _OneResource(resource or Resource.create())
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def of_environment(cls, service: str, environ: Mapping[str, str] = os.environ) -> OtelTracer | None:
        """Make one by the standard variables; None with the exporter `none`, or where they turn it off.

        Raises:
            SettingsError: One has a value that is not allowed.
        """
        chosen = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
        if chosen not in ("otlp", "console", "none"):
            raise _wrong("OTEL_TRACES_EXPORTER", chosen, "it is `otlp`, `console` or `none`")
        sampler = _sampler(environ)
        _check(environ)
        if chosen == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        exporter = ConsoleSpanExporter() if chosen == "console" else OTLPSpanExporter()
        name = environ.get("OTEL_SERVICE_NAME") or service
        try:
            processor = BatchSpanProcessor(exporter)
        except ValueError as error:
            raise SettingsError(f"OTEL_BSP_…: {error}; unset these variables, or correct them.") from None
        return cls(processor, sampler, Resource.create({SERVICE_NAME: name}))

    def begin(self, name: str, started: float, headers: Mapping[str, str], *, queued: bool = False) -> Begun:
        """Begin a request; see `Tracer`."""
        context = self._propagator.extract(headers, Context()) if "traceparent" in headers else Context()
        parent = get_current_span(context).get_span_context()
        trace_id = parent.trace_id if parent.is_valid else random.getrandbits(128) or 1
        kind = SpanKind.CONSUMER if queued else SpanKind.SERVER
        if self._sampler.should_sample(context, trace_id, name, kind).decision is not Decision.RECORD_AND_SAMPLE:
            return f"{trace_id:032x}", None
        own = SpanContext(trace_id, _span_id(), False, _SAMPLED, parent.trace_state)
        return f"{trace_id:032x}", OtelTrace(self, name, own, parent if parent.is_valid else None, kind, started)

    def close(self) -> None:
        """Send what is left; see `Tracer`."""
        thread = threading.Thread(target=self._processor.shutdown, name="sie-trace-close", daemon=True)
        thread.start()
        thread.join(CLOSE_S)

    def record(
        self,
        name: str,
        own: SpanContext,
        started: float,
        ended: float,
        facts: Mapping[str, Any],
        *,
        parent: SpanContext | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[SpanContext] = (),
        events: Sequence[tuple[str, float, Mapping[str, Any]]] = (),
        error: str | None = None,
    ) -> None:
        """Hand over one span."""
        attributes = _named(facts)
        if error is not None:
            attributes["error.type"] = error
        to_ns = time.time_ns() - time.monotonic_ns()
        span = ReadableSpan(
            name=name,
            context=own,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            links=[Link(each) for each in links],
            events=[Event(what, _named(facts), int(at * 1e9) + to_ns) for what, at, facts in events],
            kind=kind,
            status=Status(StatusCode.UNSET if error is None else StatusCode.ERROR),
            start_time=int(started * 1e9) + to_ns,
            end_time=int(max(started, ended) * 1e9) + to_ns,
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(span)


class _OneResource(Resource):
    """A resource that is hashed by what it is: the exporter hashes that of each span, and the library's by its JSON."""

    def __init__(self, of: Resource) -> None:
        super().__init__(of.attributes, of.schema_url)

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class OtelTrace:
    """The spans of one request."""

    def __init__(
        self,
        tracer: OtelTracer,
        name: str,
        own: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        started: float,
    ) -> None:
        self._tracer, self._name, self.own, self._parent, self._kind = tracer, name, own, parent, kind
        self._started, self._last = started, started
        self._has_stages = False
        self._events: list[tuple[str, float, Mapping[str, Any]]] = []

    @property
    def traceparent(self) -> str:
        """Name this request's own span."""
        return f"00-{self.own.trace_id:032x}-{self.own.span_id:016x}-01"

    def stage(self, name: str, started: float, ended: float, *, links: Sequence[Any] = (), **facts: Any) -> None:
        """Record a stage; see `Trace`."""
        if not self._has_stages:
            self._has_stages = True
            self._child("decode", self._started, started, {})
        self._last = ended
        self._child(name, started, ended, facts, links)

    def event(self, name: str, at: float, **facts: Any) -> None:
        """Record what befell it; see `Trace`."""
        self._events.append((name, at, facts))

    def apart(
        self, name: str, started: float, ended: float, of: Sequence[Trace], error: str | None = None, **facts: Any
    ) -> Any:
        """Record what was done for several requests; see `Trace`."""
        own = SpanContext(random.getrandbits(128) or 1, _span_id(), False, _SAMPLED)
        links = [each.own for each in of if isinstance(each, OtelTrace)]
        self._tracer.record(name, own, started, ended, facts, links=links, error=error)
        return own

    def end(self, ended: float, error: str | None = None, **facts: Any) -> None:
        """Record the request itself; see `Trace`."""
        if self._has_stages:
            self._child("encode", self._last, ended, {})
        self._tracer.record(
            self._name, self.own, self._started, ended, facts, parent=self._parent, kind=self._kind,
            events=self._events, error=error,
        )  # fmt: skip

    def _child(
        self, name: str, started: float, ended: float, facts: Mapping[str, Any], links: Sequence[SpanContext] = ()
    ) -> None:
        own = SpanContext(self.own.trace_id, _span_id(), False, _SAMPLED, self.own.trace_state)
        self._tracer.record(name, own, started, ended, facts, parent=self.own, links=links)


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key if "." in key else _PREFIX + key: value for key, value in facts.items() if value is not None}


def _span_id() -> int:
    return random.getrandbits(64) or 1


def _sampler(environ: Mapping[str, str]) -> Sampler:
    name, share = environ.get("OTEL_TRACES_SAMPLER") or "always_on", environ.get("OTEL_TRACES_SAMPLER_ARG") or "1.0"
    of_parent = name.startswith("parentbased_")
    if (own := name.removeprefix("parentbased_")) not in _SAMPLERS:
        allowed = ", ".join(f"`{each}`" for each in _SAMPLERS)
        raise _wrong("OTEL_TRACES_SAMPLER", name, f"it is one of {allowed}, each also with `parentbased_` before it")
    try:
        ratio = TraceIdRatioBased(float(share))
    except ValueError:
        raise _wrong("OTEL_TRACES_SAMPLER_ARG", share, "it is a share from 0 to 1") from None
    chosen = {"always_on": ALWAYS_ON, "always_off": ALWAYS_OFF, "traceidratio": ratio}[own]
    return ParentBased(chosen) if of_parent else chosen


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port
        return False


def _is_positive(value: str) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False


_OF_RECEIVER: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "ENDPOINT": ("it is a URL, as `http://localhost:4317`", _is_url),
    "PROTOCOL": ("`grpc` alone is spoken, on port 4317 as a rule", "grpc".__eq__),
    "TIMEOUT": ("it is a number of seconds, above 0", _is_positive),
    "COMPRESSION": ("it is `gzip`, or unset", "gzip".__eq__),
    "CERTIFICATE": ("it is a file", os.path.isfile),
    "CLIENT_CERTIFICATE": ("it is a file", os.path.isfile),
    "CLIENT_KEY": ("it is a file", os.path.isfile),
}
"""What variables of the receiver may say, by the end of their names, in words and as a check."""
_OF_PROCESSOR: Final = ("MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "SCHEDULE_DELAY", "EXPORT_TIMEOUT")


def _check(environ: Mapping[str, str]) -> None:
    """Refuse what the library would pass over in silence, or end with a traceback."""
    for end, (allowed, is_right) in _OF_RECEIVER.items():
        for name in (f"OTEL_EXPORTER_OTLP_TRACES_{end}", f"OTEL_EXPORTER_OTLP_{end}"):
            if (value := environ.get(name)) and not is_right(value):
                raise _wrong(name, value, allowed)
    for name in (f"OTEL_BSP_{end}" for end in _OF_PROCESSOR):
        if (value := environ.get(name)) and not (value.isdecimal() and int(value)):
            raise _wrong(name, value, "it is an integer above 0")


def _wrong(name: str, value: str, allowed: str) -> SettingsError:
    return SettingsError(f"{name}={value!r} is not allowed: {allowed}. Correct it, or unset SIE_TRACING_ENABLED.")
