"""A receiver of OTLP over gRPC, which keeps what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

LONGEST_S = 60.0


@dataclass(eq=False)
class Span:
    """What the tests read of a span; times are seconds since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    started: float
    ended: float
    links: list[tuple[str, str]]
    failed: bool
    facts: dict[str, Any]
    service: str
    events: dict[str, dict[str, Any]]
    """Their facts by name; of several of one name, those of the last."""

    @property
    def ms(self) -> float:
        return 1000 * (self.ended - self.started)


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _span(span: Any, service: str) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.status.code == 2,
        {each.key: _value(each.value) for each in span.attributes},
        service,
        {each.name: {fact.key: _value(fact.value) for fact in each.attributes} for each in span.events},
    )


@dataclass(eq=False)
class Receiver(TraceServiceServicer):  # type: ignore[misc]
    """The service; `spans` grow as they come."""

    port: int = 0
    spans: list[Span] = field(default_factory=list)
    came: threading.Condition = field(default_factory=threading.Condition)

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self.came:
            for resource in request.resource_spans:
                told = {each.key: _value(each.value) for each in resource.resource.attributes}
                spans = [span for scope in resource.scope_spans for span in scope.spans]
                self.spans += [_span(span, told["service.name"]) for span in spans]
            self.came.notify_all()
        return ExportTraceServiceResponse()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a server that sends here."""
        return {
            "SIE_TRACING_ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def wait(self, reached: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until what came is enough, and return it."""
        end = time.monotonic() + LONGEST_S
        with self.came:
            while not reached(self.spans):
                if not self.came.wait(end - time.monotonic()):
                    raise TimeoutError(f"only {len(self.spans)} spans came: {[each.name for each in self.spans]}")
            return list(self.spans)

    def of_traces(self, ids: set[str]) -> dict[str, list[Span]]:
        """Wait for the root of each of these traces, and return their spans in the order of time."""
        self.wait(lambda spans: ids <= {each.trace for each in spans if each.name.startswith(("POST", "slice"))})
        found: dict[str, list[Span]] = {each: [] for each in ids}
        for span in sorted(self.spans, key=lambda span: (span.started, span.ended)):
            if span.trace in found:
                found[span.trace].append(span)
        return found


def parent_of(number: int) -> tuple[str, str]:
    """Make a trace id and the header that names it."""
    trace = f"{number + 1:032x}"
    return trace, f"00-{trace}-00000000000000aa-01"


def named(spans: list[Span], name: str) -> Span:
    """Find the one span of a name."""
    [found] = [span for span in spans if span.name == name]
    return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_TraceServiceServicer_to_server(receiver, server)
    receiver.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver
    finally:
        server.stop(1).wait(10)
