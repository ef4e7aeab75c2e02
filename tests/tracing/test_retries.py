"""What gateway and sidecar tell of slices that are sent once more, given back or cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

pytest.importorskip("opentelemetry.sdk", reason="sie-core[tracing] is not installed")

from sie_cluster.gateway.flights.flight import Flight
from sie_cluster.gateway.flights.slicing import Packed
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.slices import Slices
from sie_fake.broker.queue import in_process_transports

from sie_core.logs import RequestFields, current_request
from sie_core.settings import load_settings
from sie_core.tracing.otel import OtelTracer
from tests.cluster.sidecar.slices import slice_of
from tests.cluster.sidecar.test_giving_back import Delivered, Host, Pulled
from tests.cluster.test_flight import TO, AtOnce
from tests.tracing.kept import Kept


class Acknowledged(Delivered):
    """A delivery that may be acknowledged too."""

    def ack(self) -> None: ...


async def test_a_slice_that_a_gateway_sends_once_more_is_an_event_of_its_request() -> None:
    kept, fields = Kept(), RequestFields("r")
    fields.begin(OtelTracer(kept), "POST /", 1.0, {}, queued=False)
    token = current_request.set(fields)
    try:
        flight = Flight(Packed(TO, "encode", "r", b"", [b"x"] * 40), "_INBOX.a.1", 60.0, 1 << 20, None, AtOnce())
    finally:
        current_request.reset(token)
    async with asyncio.timeout(30):
        await flight.run()
    assert fields.trace is not None
    fields.trace.end(2.0)
    [event] = kept.spans[0].events
    assert (event.name, dict(event.attributes or {})) == ("slice again", {"sie.slice": 0, "sie.attempt": 2})


async def test_each_delivery_to_a_sidecar_tells_how_it_ended() -> None:
    kept = Kept()
    (factory,) = in_process_transports()
    transport = factory.create("memory://traced", {})
    settings = load_settings(ClusterSettings)
    slices = Slices(transport, settings, SidecarMetrics(), Host(), None, lambda: None, lambda: None, OtelTracer(kept))
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    for number in (1, 2, 3):
        head = slice_of(number).head._replace(trace=parent, reply=f"_INBOX.a.{number}")
        slices.take(head, cast("Any", Acknowledged()), cast("Any", Pulled()))
    slices.cancel(lambda reply: reply == "_INBOX.a.2", "cancelled")
    slices.stood_still()
    slices.hand_back_all()
    await slices.end()
    errors = [(span.attributes or {})["error.type"] for span in kept.spans]
    assert errors == ["cancelled", "handed_back", "handed_back"]
    assert [[event.name for event in span.events] for span in kept.spans] == [[], ["sent"], ["sent"]]
    assert {span.context.trace_id for span in kept.spans if span.context} == {int("a" * 32, 16)}
