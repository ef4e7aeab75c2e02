"""The load generator against a server that computes nothing: what it counts, and what it refuses to call right."""

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.bench.clients.closed_loop import Answer, Round, drive
from tests.bench.clients.formats import FORMATS
from tests.bench.clients.load import Job, report
from tests.bench.without_server.in_process import padding_waste

HOST = "127.0.0.1"


@pytest.fixture
def port() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.clients.responder", "500"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        yield int(responder.stdout.readline())
        responder.stdin.close()
        responder.wait(10)


async def test_closed_loop_clients_send_every_request_once(port: int) -> None:
    requests = [FORMATS["base64"].request(HOST, "m", [f"text {place}"]) for place in range(100)]
    seen = await drive(HOST, port, Round(requests, least=100), clients=7, limit_s=30)
    assert sorted(answer.index for answer in seen.answers) == list(range(100))
    assert {(answer.status, len(answer.body)) for answer in seen.answers} == {(200, 500)}
    assert seen.lost == 0
    assert 0 < max(answer.seconds for answer in seen.answers) <= seen.ended - seen.started


async def test_a_round_goes_on_until_both_its_requests_and_its_seconds_are_over(port: int) -> None:
    requests = [FORMATS["base64"].request(HOST, "m", [f"text {place}"]) for place in range(3)]
    seen = await drive(HOST, port, Round(requests, least=20), clients=2, limit_s=30)
    assert [sum(answer.index == place for answer in seen.answers) for place in range(3)] == [7, 7, 6]

    seen = await drive(HOST, port, Round(requests, least=1, least_s=0.05), clients=2, limit_s=30)
    # The last answer may come just before the time is over, so the time is told by this clock and not by `ended`.
    assert time.perf_counter() - seen.started >= 0.05
    assert len(seen.answers) > 1


def make_job(tmp_path: Path, vectors: np.ndarray) -> Job:
    file = tmp_path / "reference.npy"
    np.save(file, vectors)
    return Job(HOST, 0, "m", "base64", 1, ["a", "b", "c"], [[0, 1], [2, 0]], 2, reference=str(file))


def answer(index: int, vectors: np.ndarray, status: int = 200) -> Answer:
    # Out of order, as an answer may be: `index` says which text a vector is for.
    data = [
        {"index": place, "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()}
        for place, vector in reversed(list(enumerate(vectors)))
    ]
    return Answer(index, status, 0.5, orjson.dumps({"data": data}))


def test_answers_are_compared_with_the_vectors_of_their_own_texts(tmp_path: Path) -> None:
    vectors = np.eye(3, 8, dtype=np.float32)
    job = make_job(tmp_path, vectors)
    seen = Round([b"", b""], 2, 0.0, 1.0, 3.0, [answer(0, vectors[[0, 1]]), answer(1, vectors[[2, 0]])])
    found = report(job, FORMATS["base64"], seen)
    assert (found.checked, found.least_cosine, found.largest_difference) == (4, 1.0, 0.0)
    assert (found.seconds, found.latencies, found.failures) == (2.0, [0.5, 0.5], 0)


def test_a_vector_of_another_text_an_unnormalised_one_and_nan_show(tmp_path: Path) -> None:
    vectors = np.eye(3, 8, dtype=np.float32)
    job = make_job(tmp_path, vectors)

    def look(given: np.ndarray) -> tuple[float | None, float | None]:
        found = report(job, FORMATS["base64"], Round([b""], 1, 0.0, 0.0, 1.0, [answer(0, given)]))
        return found.least_cosine, found.largest_difference

    assert look(vectors[[1, 0]]) == (0.0, 1.0)
    assert look(vectors[[0, 1]] * 2) == (1.0, 1.0)
    assert look(np.full((2, 8), np.nan, np.float32))[0] == -1.0


def test_failures_and_lost_requests_are_counted_not_timed(tmp_path: Path) -> None:
    vectors = np.eye(3, 8, dtype=np.float32)
    job = make_job(tmp_path, vectors)
    seen = Round(
        [b""] * 3, 3, 0.0, 0.0, 1.0, [answer(0, vectors[[0, 1]]), answer(1, vectors[[2, 0]], status=503)], lost=1
    )
    found = report(job, FORMATS["base64"], seen)
    assert (found.failures, len(found.latencies), found.indices) == (2, 1, [0])
    assert found.failure_samples[0].startswith("503 ")


def test_padding_waste_is_the_padded_share_of_batches_sorted_by_length() -> None:
    assert padding_waste(["aaaa", "a", "aaaa", "a"], [4, 1, 4, 1], batch=2) == 0
    assert padding_waste(["aaaa", "a"], [4, 1], batch=2) == 1 - 5 / 8
