"""How a request's trace begins: any header is survived, and what is not sampled builds nothing."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="sie-core[tracing] is not installed")

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, TraceIdRatioBased

from sie_core.tracing.otel import OtelTracer
from tests.tracing.kept import Kept

HEX = "0123456789abcdefABCDEFg"
PARTS = st.tuples(*(st.text(HEX, min_size=size - 1, max_size=size + 1) for size in (2, 32, 16, 2)))
HEADERS = st.one_of(st.text(max_size=200), PARTS.map("-".join), st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01"))
SPANS = {"OtelTrace.__init__", "ReadableSpan.__init__", "SpanContext.__new__"}


@given(HEADERS, st.text(max_size=600), st.sampled_from([ALWAYS_ON, ALWAYS_OFF, TraceIdRatioBased(0.5)]))
def test_any_headers_begin_a_trace_whose_id_is_that_of_a_valid_parent(
    parent: str, state: str, sampler: Sampler
) -> None:
    kept = Kept()
    headers = {"traceparent": parent, "tracestate": state, "baggage": state}
    trace_id, trace = OtelTracer(kept, sampler).begin("POST /", 1.0, headers)
    assert re.fullmatch(r"[0-9a-f]{32}", trace_id)
    assert int(trace_id, 16)
    valid = re.fullmatch(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", parent)
    if valid:
        assert trace_id == valid[1]
    if trace is not None:
        assert trace.traceparent.split("-")[1] == trace_id
        trace.end(2.0)
    assert len(kept.spans) == (trace is not None)


def calls_of(sampler: Sampler) -> set[str]:
    """Name the functions that the begin and end of a request call, with a parent and without."""
    tracer, called = OtelTracer(Kept(), sampler), set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        begun = [tracer.begin("POST /", 1.0, headers)[1] for headers in ({}, {"traceparent": "junk"})]
    finally:
        sys.setprofile(None)
    assert all((trace is None) == (sampler is ALWAYS_OFF) for trace in begun)
    return called


def test_sampling_decides_before_anything_is_built() -> None:
    assert calls_of(ALWAYS_ON) & SPANS
    assert not calls_of(ALWAYS_OFF) & SPANS
