"""Batches that a test put together, as traces tell of them: who was in each, what failed, what was given up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="sie-core[tracing] is not installed")

from sie_fake.record import read_journal

from tests.conftest import Server, run_server
from tests.server.conftest import write_held
from tests.tracing.receiver import Receiver, named, parent_of, receiving

ROUTE = "POST /v1/encode/{model:path}"
MODEL = "test/held"
BOUND_S = 60.0


@dataclass
class Held:
    """A traced server of one model, whose runs wait while a file is there."""

    server: Server
    receiver: Receiver
    hold: Path
    journal: Path

    def ask(self, number: int, text: str | None = None, timeout_s: float = BOUND_S) -> httpx.Response | None:
        """Send a request with one text, its number, in a trace of its own; None where the client did not wait."""
        body = {"items": [{"text": text or str(number)}]}
        headers = {"traceparent": parent_of(number)[1]}
        url = f"{self.server.url}/v1/encode/{MODEL}"
        try:
            return httpx.post(url, json=body, headers=headers, timeout=timeout_s)
        except httpx.ReadTimeout:
            return None

    def in_flight(self, count: int) -> None:
        """Wait until so many requests are."""
        end = time.monotonic() + BOUND_S
        while time.monotonic() < end:
            if httpx.get(f"{self.server.url}/health", timeout=BOUND_S).json()["requests_in_flight"] == count:
                return
            time.sleep(0.01)
        raise TimeoutError(f"never {count} requests in flight")

    @contextmanager
    def held_up(self) -> Iterator[ThreadPoolExecutor]:
        """Have one request occupy the device within the block, so that the block's requests are queued together."""
        self.hold.touch()
        with ThreadPoolExecutor(70) as threads:
            threads.submit(self.ask, 999)
            self.in_flight(1)
            try:
                yield threads
            finally:
                self.hold.unlink()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("held")
    model = write_held(folder, '{crash_text: "[crash]"}')
    with receiving() as receiver:
        environment = {"SIE_PLUGINS": "fake", "SIE_MODELS_DIR": str(model.folder), **receiver.environment}
        with run_server(folder, environment, ["--preload", MODEL]) as server:
            yield Held(server, receiver, model.hold, model.journal)


def test_each_batch_links_exactly_the_requests_that_ran_in_it(held: Held) -> None:
    numbers = range(64)
    with held.held_up() as threads:
        replies = [threads.submit(held.ask, number) for number in numbers]
        held.in_flight(65)
    assert {reply.result().status_code for reply in replies} == {200}
    traces = held.receiver.of_traces({parent_of(number)[0] for number in numbers})
    roots = {(trace, named(spans, ROUTE).id): int(trace, 16) - 1 for trace, spans in traces.items()}
    links = {link for spans in traces.values() for link in named(spans, "batch").links}
    all_spans = held.receiver.wait(lambda spans: links <= {(span.trace, span.id) for span in spans})
    batches = [span for span in all_spans if (span.trace, span.id) in links]
    told = sorted(sorted(roots[link] for link in batch.links) for batch in batches)
    runs = [sorted(map(int, event.texts)) for event in read_journal(held.journal) if event.kind == "run"]
    assert told == sorted(run for run in runs if set(run) <= set(numbers))
    assert max(map(len, told)) > 1


def test_a_batch_that_is_split_is_told_to_each_request_of_it_and_the_culprit_has_its_error(held: Held) -> None:
    with held.held_up() as threads:
        well = [threads.submit(held.ask, number) for number in range(100, 107)]
        ill = threads.submit(held.ask, 107, "[crash]")
        held.in_flight(9)
    assert {reply.result().status_code for reply in well} == {200}
    refused, trace_id = ill.result(), parent_of(107)[0]
    told = refused.json()["error"]
    assert (refused.status_code, told["code"]) == (500, "INFERENCE_ERROR")
    assert told["request_id"] == refused.headers["x-sie-request-id"]
    assert told["trace_id"] == refused.headers["x-trace-id"] == trace_id
    assert f"[request_id={told['request_id']} trace_id={trace_id}]" in held.server.log()
    traces = held.receiver.of_traces({parent_of(number)[0] for number in range(100, 108)})
    for trace, spans in traces.items():
        root = named(spans, ROUTE)
        assert root.events["batch failed"].keys() >= {"sie.error", "sie.retried_in"}
        of_culprit = trace == trace_id
        assert root.facts.get("error.type") == ("INFERENCE_ERROR" if of_culprit else None)
        assert ("finish" in {span.name for span in spans}) != of_culprit
    failed = [span for span in held.receiver.spans if span.name == "batch" and span.failed]
    assert max(span.facts["sie.retried_in"] for span in failed) == 2
    assert "[crash]" not in str([(span.facts, span.events) for span in held.receiver.spans])


def test_a_request_whose_client_left_says_so_and_has_the_stages_that_it_reached(held: Held) -> None:
    with held.held_up():
        assert held.ask(200, timeout_s=0.5) is None
        [spans] = held.receiver.of_traces({parent_of(200)[0]}).values()
    root = named(spans, ROUTE)
    assert (root.facts["error.type"], root.facts["http.response.status_code"]) == ("CLIENT_CLOSED_REQUEST", 499)
    assert [span.name for span in spans if span is not root][-2:] == ["queue", "encode"]
