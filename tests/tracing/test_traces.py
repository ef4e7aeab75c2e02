"""Traces of a real server, as a real receiver of OTLP gets them."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="sie-core[tracing] is not installed")

from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from sie_sdk import SIEClient

from tests.conftest import Server, run_cluster, run_server
from tests.tracing.receiver import Receiver, named, parent_of, receiving

MODEL = "sie-fake/embedder"
ROUTE = "POST /v1/encode/{model:path}"
STAGES = ["decode", "model", "prepare.wait", "prepare", "queue", "batch", "finish", "encode"]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environment = {"SIE_PLUGINS": "fake", **receiver.environment}
    with run_server(tmp_path_factory.mktemp("traced"), environment, ["--preload", MODEL, "--json-logs"]) as server:
        yield server


async def asked(url: str, count: int, first: int = 0) -> dict[str, httpx.Response]:
    """Send requests at once, and return the replies by their trace."""
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=count)) as client:

        async def ask(number: int) -> tuple[str, httpx.Response]:
            trace, header = parent_of(number)
            body = {"items": [{"text": f"text {number}"}] * (1 + number % 3)}
            reply = await client.post(f"/v1/encode/{MODEL}", json=body, headers={"traceparent": header})
            return trace, reply

        return dict(await asyncio.gather(*map(ask, range(first, first + count))))


def test_a_request_has_each_stage_once_and_their_times_are_those_of_the_reply(
    receiver: Receiver, server: Server
) -> None:
    replies = asyncio.run(asked(server.url, 64))
    traces = receiver.of_traces(set(replies))
    for trace, spans in traces.items():
        root, reply = named(spans, ROUTE), replies[trace]
        stages = [span for span in spans if span is not root]
        assert sorted(span.name for span in stages) == sorted(STAGES)
        assert {span.parent for span in stages} == {root.id}
        assert root.parent == "00000000000000aa"
        assert sum(span.ms for span in stages) == pytest.approx(root.ms, rel=0.05)
        timing = {name: float(reply.headers[f"x-{name}-time"]) for name in ("queue", "tokenization", "inference")}
        ms = {span.name: span.ms for span in stages}
        assert ms["prepare.wait"] + ms["queue"] == pytest.approx(timing["queue"], abs=1)
        assert ms["prepare"] == pytest.approx(timing["tokenization"], abs=1)
        assert ms["batch"] == pytest.approx(timing["inference"], abs=1)
        assert root.facts["http.response.status_code"] == 200
        assert root.facts["gen_ai.request.model"] == MODEL
        assert root.facts["sie.request_id"] == reply.headers["x-sie-request-id"]
        assert reply.headers["x-trace-id"] == trace
        assert root.service == "sie-server"
        assert "text " not in str([span.facts for span in spans])


def test_a_scraper_of_openmetrics_is_told_of_recorded_traces_as_exemplars(receiver: Receiver, server: Server) -> None:
    replies = asyncio.run(asked(server.url, 4, first=5000))
    for accept, wanted in (("application/openmetrics-text; version=1.0.0", True), ("text/plain", False)):
        told = httpx.get(f"{server.url}/metrics", headers={"Accept": accept}, timeout=60).text
        found = set(re.findall(r'^sie_http_request_seconds_bucket.* # {trace_id="(\w+)"}', told, re.MULTILINE))
        assert bool(found & replies.keys()) == wanted


def test_a_batch_is_a_span_of_its_own_with_links_to_its_requests_and_back(receiver: Receiver, server: Server) -> None:
    replies = asyncio.run(asked(server.url, 64, first=100))
    traces = receiver.of_traces(set(replies))
    of_requests = {
        (named(spans, ROUTE).trace, named(spans, ROUTE).id): named(spans, "batch") for spans in traces.values()
    }
    wanted = {link for batch in of_requests.values() for link in batch.links}
    all_spans = receiver.wait(lambda spans: wanted <= {(span.trace, span.id) for span in spans})
    batches = {(span.trace, span.id): span for span in all_spans if (span.trace, span.id) in wanted}
    for request, of_request in of_requests.items():
        assert of_request.links
        for link in of_request.links:
            assert request in batches[link].links
    for key, batch in batches.items():
        assert batch.facts["sie.requests"] == len(batch.links)
        assert batch.facts["sie.units"] >= batch.facts["sie.requests"]
        assert batch.facts["sie.cost"] > 0
        assert batch.facts["sie.model"] == MODEL
        assert all(key in of_requests[link].links for link in batch.links if link in of_requests)


def test_a_cold_load_is_told_with_its_stages_and_links_to_who_caused_it(receiver: Receiver, server: Server) -> None:
    trace, header = parent_of(1000)
    headers = {"traceparent": header, "X-SIE-Timeout-Ms": "60000"}
    body = {"model": "sie-fake/dense", "input": ["cold"]}
    httpx.post(f"{server.url}/v1/embeddings", json=body, headers=headers, timeout=60).raise_for_status()
    [spans] = receiver.of_traces({trace}).values()
    [load] = [span for span in receiver.wait(lambda spans: any(s.name == "load" for s in spans)) if span.name == "load"]
    assert load.links == [(trace, named(spans, "POST /v1/embeddings").id)]
    assert load.facts["sie.model"] == "sie-fake/dense"
    assert load.facts["sie.load.total_s"] <= load.ended - load.started + 0.01
    assert load.ms <= named(spans, "model").ms


def test_failures_have_their_code_and_the_trace_of_the_log(receiver: Receiver, server: Server) -> None:
    trace, header = parent_of(2000)
    reply = httpx.post(f"{server.url}/v1/encode/{MODEL}", json={"items": "secret"}, headers={"traceparent": header})
    [spans] = receiver.of_traces({trace}).values()
    [root] = spans
    assert (reply.status_code, root.failed, root.facts["error.type"]) == (400, True, "INVALID_INPUT")
    assert "secret" not in str(root.facts)


@pytest.mark.parametrize(
    "header",
    ["", "junk", "00-" + "0" * 32 + "-00000000000000aa-01", "ff-" + "1" * 32 + "-00000000000000aa-01", "é" * 300],
)
def test_a_strange_traceparent_begins_a_trace_of_our_own(receiver: Receiver, server: Server, header: str) -> None:
    headers = {"traceparent": header.encode(), "baggage": b"k=" + b"v" * 8000}
    reply = httpx.post(f"{server.url}/v1/encode/{MODEL}", json={"items": [{"text": "a"}]}, headers=headers)
    assert reply.status_code == 200
    [spans] = receiver.of_traces({reply.headers["x-trace-id"]}).values()
    assert named(spans, ROUTE).parent == ""


@contextmanager
def bad_receiver(kind: str) -> Iterator[int]:
    """Give the port of a receiver that accepts no connection, says nothing, or answers with what is no gRPC."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        if kind == "absent":
            listener.close()
        if kind == "nonsense":
            threading.Thread(target=talk_nonsense, args=(listener,), daemon=True).start()
        yield port


def talk_nonsense(listener: socket.socket) -> None:
    with suppress(OSError):  # it is closed with the test
        while True:
            with closing(listener.accept()[0]) as connection:
                connection.sendall(b"220 mail.example.com ready\r\n" * 100)


@pytest.mark.parametrize("kind", ["absent", "silent", "nonsense"])
def test_a_receiver_that_takes_nothing_costs_no_request_no_memory_and_no_stop(start_server, kind: str) -> None:
    with bad_receiver(kind) as port:
        environment = {
            "SIE_PLUGINS": "fake",
            "SIE_TRACING_ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64",
        }
        server = start_server(environment, ["--preload", MODEL])
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for _ in range(50):
                client.post(f"/v1/encode/{MODEL}", json={"items": [{"text": "a"}]}).raise_for_status()
        server.wait_for_log("dropping Span")  # beyond the 64 that wait
        server.signal()
        assert server.wait() == 0


def test_of_two_traceparents_the_first_counts(receiver: Receiver, server: Server) -> None:
    headers = [("traceparent", parent_of(number)[1]) for number in (4000, 4001)]
    reply = httpx.post(f"{server.url}/v1/encode/{MODEL}", json={"items": [{"text": "a"}]}, headers=headers)
    assert (reply.status_code, reply.headers["x-trace-id"]) == (200, parent_of(4000)[0])


def test_what_is_not_sampled_is_not_sent_and_has_an_id_all_the_same(start_server, receiver: Receiver) -> None:
    environment = {"SIE_PLUGINS": "fake", "OTEL_TRACES_SAMPLER": "always_off", **receiver.environment}
    server = start_server(environment, ["--preload", MODEL])
    reply = httpx.post(f"{server.url}/v1/encode/{MODEL}", json={"items": [{"text": "a"}]})
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert "trace_id" not in httpx.get(f"{server.url}/metrics", headers=openmetrics).text
    server.signal()
    assert server.wait() == 0
    trace = reply.headers["x-trace-id"]
    assert len(trace) == 32
    assert trace not in {span.trace for span in receiver.spans}


def test_a_trace_goes_through_gateway_queue_and_worker(receiver: Receiver, tmp_path) -> None:
    environment = receiver.environment
    with run_cluster(tmp_path, "--workers", "1", "--preload", MODEL, env=environment) as cluster:
        trace, header = parent_of(3000)
        body = {"items": [{"text": "a"}]}
        reply = httpx.post(f"{cluster.url}/v1/encode/{MODEL}", json=body, headers={"traceparent": header}, timeout=60)
        assert reply.status_code == 200
        wanted = {ROUTE, "slice encode", "sidecar encode"}
        spans = receiver.wait(lambda spans: wanted <= {s.name for s in spans if s.trace == trace})
        late, header = parent_of(3001)
        slow = f"{cluster.url}/v1/encode/{MODEL}:slow"
        body = {"items": [{"text": "a"}], "params": {"options": {"latency_ms": 2000}}}
        refused = httpx.post(slow, json=body, headers={"traceparent": header, "X-SIE-Timeout-Ms": "500"}, timeout=60)
        assert refused.status_code == 504
        wanted = {ROUTE, "sidecar encode"}
        of_late = receiver.wait(lambda spans: wanted <= {s.name for s in spans if s.trace == late})
    of_trace = [span for span in spans if span.trace == trace]
    root, piece, sidecar = (named(of_trace, name) for name in (ROUTE, "slice encode", "sidecar encode"))
    assert (root.service, sidecar.service, piece.service) == ("sie-gateway", "sie-sidecar", "sie-worker")
    assert piece.parent == sidecar.parent == root.id
    stages = {span.name for span in of_trace if span.parent == root.id}
    assert stages == {"decode", "workers", "encode", "slice encode", "sidecar encode"}
    assert sorted(span.name for span in of_trace if span.parent == piece.id) == sorted(STAGES)
    assert root.started <= sidecar.started <= piece.started <= piece.ended <= sidecar.ended
    assert piece.ended <= root.ended
    assert sidecar.facts["sie.how"] == "answered"
    assert list(sidecar.events) == ["sent", "answered"]
    given_up = [span for span in of_late if span.trace == late]
    assert named(given_up, ROUTE).facts["error.type"] == "DEADLINE_EXCEEDED"
    assert named(given_up, "sidecar encode").facts["error.type"] == "cancelled"


def test_the_sdk_sends_on_the_trace_of_its_program(receiver: Receiver, server: Server) -> None:
    context = SpanContext(0xABCDEF, 0xFE, is_remote=False, trace_flags=TraceFlags(1))
    with use_span(NonRecordingSpan(context)), SIEClient(server.url) as client:
        client.encode(MODEL, {"text": "a"})
    [spans] = receiver.of_traces({f"{0xABCDEF:032x}"}).values()
    assert named(spans, ROUTE).parent == f"{0xFE:016x}"
