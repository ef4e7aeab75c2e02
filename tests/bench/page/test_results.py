"""Ratios, verdicts, tables, rankings and the picture, from made-up measurements."""

from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.bench.clients.cells import Measurement
from tests.bench.page.picture import draw, ticks
from tests.bench.page.results import Ratio, Record, Results, choose, middle, ratio
from tests.bench.page.tables import render
from tests.bench.page.verdicts import verdicts
from tests.bench.without_server.accuracy import compare, make_queries
from tests.bench.workload.texts import make_texts


def record(server: str, repetition: int, clients: int, texts_s: float, p50: float = 10.0, group: int = 1) -> Record:
    measurement = Measurement(
        p50=p50, p99=2 * p50, texts_s=texts_s, tokens_s=50 * texts_s, requests_s=texts_s, cpu_s=1.0, seconds=1.0,
        body_bytes=2000.0, failures=0, checked=5, least_cosine=1.0, largest_difference=1e-7,
    )  # fmt: skip
    place = {"server": server, "kind": "mixed", "group": group, "clients": clients, "format": "base64"}
    return {**place, "repetition": repetition, **asdict(measurement)}


@pytest.fixture
def results() -> Results:
    grid = [
        *(record("sie", place, 64, rate) for place, rate in enumerate((90.0, 100.0, 110.0))),
        *(record("infinity", place, 64, rate) for place, rate in enumerate((10.0, 20.0, 10.0))),
        record("sie", 0, 1, 30.0, p50=9.0),
        record("infinity", 0, 1, 10.0, p50=30.0),
        record("sie", 0, 8, 100.0),
    ]
    hardware = {
        "cpu": "a CPU", "cpus": 2, "threads": 2, "flags": [], "memory_gb": 8, "system": "Linux", "python": "3.11",
        "versions": {}, "environments": {},
    }  # fmt: skip
    return Results(hardware=hardware, grid=grid, load={"requests_s": 11_000.0})


def test_a_ratio_is_taken_within_each_repetition(results: Results) -> None:
    ours, theirs = (choose(results.grid, server=name, clients=64) for name in ("sie", "infinity"))
    assert ratio(ours, theirs, "texts_s") == Ratio(9.0, 5.0, 11.0)
    assert ratio(ours, [], "texts_s") is None
    assert middle(ours, "texts_s") == 100.0


def test_verdicts_hold_where_the_bar_is_cleared_and_say_so_where_it_is_not(results: Results) -> None:
    found = {each.what: each for each in verdicts(results)}
    assert found["p50 of one text, one client, over infinity, torch"].holds
    assert found["texts/s at 64 clients over infinity, torch"].holds
    assert not found["our texts/s at 64 clients over those at 8"].holds


def test_results_survive_being_saved_and_give_the_same_tables(results: Results, tmp_path: Path) -> None:
    results.save(tmp_path)
    tables = render(Results.read(tmp_path))
    assert tables == render(results)
    assert "| mixed | 1 | 64 | 100.0 | 10.0 | 9.00 (5.00–11.00) | 1.00 (1.00–1.00) |" in tables
    assert "100 times the fastest cell" in tables


def test_the_picture_is_well_formed_and_shows_every_server_measured(results: Results) -> None:
    picture = ElementTree.fromstring(draw(results))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"SIE", "infinity, torch", "100"} <= set(texts)
    assert "infinity, ONNX" not in texts


def test_ticks_are_round_and_few() -> None:
    assert ticks(105) == [0, 20, 40, 60, 80, 100]
    assert ticks(0.9) == [0, 0.2, 0.4, 0.6, 0.8]


def test_equal_vectors_rank_equally_and_a_swap_shows_its_gap() -> None:
    random = np.random.default_rng(3)
    documents, queries = (random.normal(size=(count, 16)).astype(np.float32) for count in (50, 20))
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    same = compare(queries, documents, queries, documents)
    assert (same.overlap, same.equal_first, same.swapped_pairs, same.widest_swap) == (1, 1, 0, 0)

    other = compare(queries, documents[::-1], queries, documents)
    assert other.overlap < 0.6
    assert other.equal_first < 0.5
    scores = queries @ documents.T
    assert 0.1 < other.widest_swap <= scores.max() - scores.min() + 1e-6


def test_queries_are_cut_out_of_documents() -> None:
    corpus = make_texts("mixed", 30)
    queries = make_queries(corpus, 10)
    assert len(queries) == 10
    assert all(any(query in text for text in corpus) for query in queries)
