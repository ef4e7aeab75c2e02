"""Calls of many items: how they are cut into requests, and what becomes of the items that fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sie_sdk import FailedItem, RequestError, ServerError, SIEConnectionError, wire
from sie_sdk._calls.exchange import Done, Response, Send, TransportFailure, step

from .conftest import Rehearsal, answer

QUIET = {"progress": False}


@dataclass
class Server:
    """Answers a text of a number with the vector of it, and refuses what `refuse` does; records each request."""

    refuse: Callable[[list[str]], Response | TransportFailure | None] = lambda texts: None
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, send: Send) -> Response | TransportFailure:
        body: Any = wire.unpack(send.body or b"")
        texts = [item.get("text", "an image") for item in body["items"]]
        self.asked.append(texts)
        if refused := self.refuse(texts):
            return refused
        if "query" in body:
            scores = [
                {"item_id": item["id"], "score": float(item["text"]), "rank": rank}
                for rank, item in enumerate(sorted(body["items"], key=lambda item: -float(item["text"])))
            ]
            return answer({"model": "m", "scores": scores})
        if send.url.endswith("extract/org/m"):
            entities = [[{"text": text, "label": "word", "score": 1.0}] for text in texts]
            found = [
                {"id": item.get("id"), "entities": each} for item, each in zip(body["items"], entities, strict=True)
            ]
            return answer({"model": "m", "items": found})
        items = [
            {"id": item.get("id"), "dense": {"dtype": "float32", "values": np.float32([len(text)])}}
            for item, text in zip(body["items"], texts, strict=True)
        ]
        return answer({"model": "m", "items": items})


def blaming(bad: str, status: int = 400, code: str | None = "INVALID_INPUT", *, named: bool = True) -> Server:
    """A server that fails a request with the text `bad`, and may name the item."""

    def refuse(texts: list[str]) -> Response | None:
        if bad not in texts:
            return None
        return Rehearsal.error(status, code, **({"param": f"items[{texts.index(bad)}].text"} if named else {}))

    return Server(refuse)


def done(batches: Any, server: Server) -> Iterator[Any]:
    with batches:
        for batch, operation in batches:
            outcome = None
            while not isinstance(action := step(operation, outcome), Done):
                outcome = server(action) if isinstance(action, Send) else None
            yield batch


def run(batches: Any, server: Server) -> Any:
    return batches.outcome(list(done(batches, server)))


def pieces(batches: Any, server: Server) -> Iterator[Any]:
    for batch in done(batches, server):
        yield from batches.pieces(batch)


def encode(rehearsal: Rehearsal, items: Any, server: Server, **settings: Any) -> Any:
    return run(rehearsal.protocol().encode_many("org/m", items, QUIET | settings), server)


def score(rehearsal: Rehearsal, queries: Any, server: Server, **settings: Any) -> Any:
    return run(rehearsal.protocol().score_many("org/m", queries, QUIET | settings), server)


def test_a_generator_of_items_gives_results_in_their_order_and_a_matrix(rehearsal):
    server = Server()
    many = encode(rehearsal, ("x" * length for length in range(1, 6)), server, batch_size=2)
    assert [len(texts) for texts in server.asked] == [2, 2, 1]
    assert [result["dense"].tolist() for result in many.results] == [[1], [2], [3], [4], [5]]
    assert many.failed == []
    assert (many.matrix().shape, many.matrix().dtype) == ((5, 1), np.float32)
    assert many.matrix()[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_no_items_are_no_request(rehearsal):
    server = Server()
    assert encode(rehearsal, [], server).matrix().shape == (0, 0)
    assert score(rehearsal, [], server).matrix().shape == (0, 0)
    assert score(rehearsal, [("q", [])], server).results == [{"model": "org/m", "scores": []}]
    assert server.asked == []


def test_items_are_read_no_further_than_they_are_sent(rehearsal):
    read = []

    def items() -> Iterator[str]:
        for place in range(100):
            read.append(place)
            yield "x"

    batches = rehearsal.protocol().encode_many("org/m", items(), QUIET | {"batch_size": 10})
    next(iter(batches))
    assert len(read) == 10


@pytest.mark.parametrize(
    "server",
    [
        blaming("bad"),
        blaming("bad", 400, "INPUT_TOO_LONG"),
        blaming("bad", 400, "INPUT_TOO_LONG", named=False),
        blaming("bad", 413, "PAYLOAD_TOO_LARGE", named=False),
        blaming("bad", 500, "INFERENCE_ERROR", named=False),
        blaming("bad", 500, "NON_FINITE_OUTPUT", named=False),
        blaming("bad", 503, "RESOURCE_EXHAUSTED", named=False),
        Server(lambda texts: Rehearsal.vectors(7) if "bad" in texts else None),
    ],
)
def test_an_item_that_fails_is_told_and_costs_no_other(rehearsal, server):
    items = ["a", {"text": "bb"}, {"id": "third", "text": "bad"}, "cccc", "ddddd"]
    many = encode(rehearsal, items, server, max_oom_retries=0)
    assert [(each.place, each.id, each.query) for each in many.failed] == [(2, "third", None)]
    assert isinstance(many.failed[0].error, Exception)
    assert [None if result is None else result["dense"][0] for result in many.results] == [1, 2, None, 4, 5]
    with pytest.raises(ValueError, match=r"1 of 5 items failed, first items\[2\]: .*; `missing` fills"):
        many.matrix()
    np.testing.assert_array_equal(many.matrix(missing=np.nan)[:, 0], [1, 2, np.nan, 4, 5])
    assert many.matrix(missing=0)[2] == 0


def test_an_item_that_is_none_is_told_where_its_file_is_missing_or_its_kind_unknown(rehearsal, tmp_path):
    items = ["a", 7, {"images": [tmp_path / "missing.png"]}, {"text": "bb", "metadata": {"n": 2**70}}, "ccc"]
    many = encode(rehearsal, items, Server())
    assert [each.place for each in many.failed] == [1, 2, 3]
    assert [type(each.error) for each in many.failed] == [TypeError, ValueError, wire.WireError]
    assert "items[1] is a int" in str(many.failed[0].error)
    assert many.matrix(missing=0)[:, 0].tolist() == [1, 0, 0, 0, 3]


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (Rehearsal.error(401, "UNAUTHORIZED"), RequestError),
        (Rehearsal.error(400, "INVALID_INPUT", param="output_dtype"), RequestError),
        (Rehearsal.error(404, "MODEL_NOT_FOUND"), RequestError),
        (TransportFailure("final", OSError("cut")), SIEConnectionError),
    ],
)
def test_a_failure_of_no_item_is_raised_unless_something_was_answered(rehearsal, refusal, kind):
    nothing = Server(lambda texts: refusal)
    with pytest.raises(kind):
        encode(rehearsal, ["x"] * 9, nothing, batch_size=3)
    assert len(nothing.asked) == 1, "the other items were tried too"

    later = Server(lambda texts: refusal if "bad" in texts else None)
    many = encode(rehearsal, ["a", "b", "bad", "c", "d"], later, batch_size=2)
    assert len(later.asked) == 2, "the other items were tried too"
    assert [result is None for result in many.results] == [False, False, True, True, True]
    assert [(each.place, type(each.error)) for each in many.failed] == [(2, kind), (3, kind), (4, kind)]


def test_a_server_that_takes_no_item_of_the_first_batches_is_not_asked_for_all(rehearsal):
    def refuse(texts: list[str]) -> Response:
        return Rehearsal.error(500, "INFERENCE_ERROR")

    server = Server(refuse)
    with pytest.raises(ServerError):
        encode(rehearsal, ["x"] * 100, server, batch_size=4, parallel=2)
    assert len(server.asked) == 14, "two batches and all their halves"


def test_queries_that_are_all_bad_at_first_end_nothing(rehearsal):
    def refuse(texts: list[str]) -> Response | None:
        return Rehearsal.error(400, "INVALID_INPUT", param="query.text") if "3" in texts else None

    many = score(rehearsal, [("bad", ["3"])] * 4 + [("q", ["2"])] * 2, Server(refuse), parallel=2)
    assert [each.query for each in many.failed] == [0, 1, 2, 3]


def test_a_first_batch_of_bad_items_alone_ends_nothing(rehearsal):
    many = encode(rehearsal, ["bad", "a", "b"], blaming("bad"), batch_size=1, parallel=2)
    assert [each.place for each in many.failed] == [0]
    many = encode(rehearsal, ["bad"], blaming("bad"))
    assert [each.place for each in many.failed] == [0]


def test_texts_that_are_all_too_long_at_first_end_nothing(rehearsal):
    def refuse(texts: list[str]) -> Response | None:
        long = [place for place, text in enumerate(texts) if len(text) > 3]
        return Rehearsal.error(400, "INPUT_TOO_LONG", param=f"items[{long[0]}].text") if long else None

    many = encode(rehearsal, ["xxxx", "yyyy", "a", "b"], Server(refuse), batch_size=2)
    assert [each.place for each in many.failed] == [0, 1]


def test_a_request_ends_before_its_media_are_too_many_for_a_server(rehearsal):
    server = Server()
    many = encode(rehearsal, [{"document": b"x" * (3 * 2**20)}] * 7, server)
    assert [len(texts) for texts in server.asked] == [3, 3, 1]
    assert many.failed == []


def test_documents_of_many_queries_are_ranked_however_many_there_are(rehearsal):
    server = Server()
    documents = [str(place) for place in range(5)]
    queries = [("p", documents), ({"text": "q", "id": "q"}, [{"text": "9", "id": "same"}, {"text": "7", "id": "same"}])]
    many = score(rehearsal, iter(queries), server, batch_size=2)
    assert [len(texts) for texts in server.asked] == [2, 2, 1, 2]
    first, second = many.results
    assert [(each["item_id"], each["score"], each["rank"]) for each in first["scores"]] == [
        (f"item-{place}", place, 4 - place) for place in (4, 3, 2, 1, 0)
    ]
    assert "query_id" not in first
    assert second["query_id"] == "q"
    assert [(each["item_id"], each["score"]) for each in second["scores"]] == [("same", 9), ("same", 7)]
    np.testing.assert_array_equal(many.matrix(), [[0, 1, 2, 3, 4], [9, 7, np.nan, np.nan, np.nan]])
    assert many.matrix().dtype == np.float32


def test_documents_may_come_from_a_generator_too(rehearsal):
    many = score(rehearsal, [("q", (str(place) for place in range(3)))], Server())
    assert many.matrix().tolist() == [[0, 1, 2]]


def test_a_document_that_fails_is_told_with_its_query(rehearsal):
    server = blaming("8")
    many = score(rehearsal, [("p", ["1", "2", "3"]), ("q", ["7", {"text": "8", "id": "b"}, "9"])], server, batch_size=2)
    assert [(each.query, each.place, each.id) for each in many.failed] == [(1, 1, "b")]
    assert [each["item_id"] for each in many.results[1]["scores"]] == ["item-2", "item-0"]
    with pytest.raises(ValueError, match=r"1 of 6 items failed, first items\[1\] of queries\[1\]"):
        many.matrix()
    np.testing.assert_array_equal(many.matrix(missing=-1), [[1, 2, 3], [7, -1, 9]])


def test_a_query_that_fails_tells_its_documents_and_no_others(rehearsal, tmp_path):
    def refuse(texts: list[str]) -> Response | None:
        return Rehearsal.error(400, "INVALID_INPUT", param="query.text") if "3" in texts else None

    queries = [("p", ["1"]), ("bad", ["3", "4"]), ({"images": [tmp_path / "none.png"]}, ["5", "6"]), ("q", ["2"])]
    many = score(rehearsal, queries, Server(refuse))
    assert [(each.query, each.place) for each in many.failed] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert "queries[2].images[0] names the file" in str(many.failed[2].error)
    assert [len(result["scores"]) for result in many.results] == [1, 0, 0, 1]


def test_results_of_any_number_are_given_one_by_one_and_an_item_that_fails_in_its_place(rehearsal):
    server, read = blaming("bad"), []

    def items() -> Iterator[str]:
        for place in range(10**9):
            read.append(place)
            yield "bad" if place == 3 else "x" * place

    stream = pieces(rehearsal.protocol().encode_many("org/m", items(), QUIET | {"batch_size": 2}), server)
    got = [next(stream) for _ in range(6)]
    assert len(read) == 6
    assert [each["dense"][0] for each in got if isinstance(each, dict)] == [0, 1, 2, 4, 5]
    assert isinstance(got[3], FailedItem)
    assert got[3].place == 3


def test_extraction_of_many_items_tells_the_item_that_fails(rehearsal):
    server, texts = blaming("bad"), ["a", {"id": "second", "text": "bad"}, "c", "d"]
    many = run(rehearsal.protocol().extract_many("org/m", iter(texts), QUIET | {"batch_size": 2}), server)
    assert [each and each["entities"][0]["text"] for each in many.results] == ["a", None, "c", "d"]
    assert [(each.place, each.id) for each in many.failed] == [(1, "second")]
    assert server.asked[1:] == [["a"], ["c", "d"]]
    stream = pieces(rehearsal.protocol().extract_many("org/m", texts, QUIET, "extract_iter"), server)
    assert [isinstance(each, FailedItem) for each in stream] == [False, True, False, False]


def test_a_failure_of_no_item_is_raised_in_its_place(rehearsal):
    refusal = Rehearsal.error(401, "UNAUTHORIZED")
    server = Server(lambda texts: refusal if "bad" in texts else None)
    stream = pieces(
        rehearsal.protocol().encode_many("org/m", ["a", "bb", "bad", "c"], QUIET | {"batch_size": 1}), server
    )
    assert [next(stream)["dense"][0] for _ in range(2)] == [1, 2]
    with pytest.raises(RequestError):
        next(stream)


def test_a_ranking_is_given_once_its_last_document_is_scored(rehearsal):
    server = blaming("7")
    queries = (("q", [str(place * 10 + each) for each in range(count)]) for place, count in enumerate([3, 0, 1, 2]))
    stream = pieces(rehearsal.protocol().score_many("org/m", queries, QUIET | {"batch_size": 2}), server)
    got = next(stream)
    assert [each["item_id"] for each in got.result["scores"]] == ["item-2", "item-1", "item-0"]
    assert len(server.asked) == 2
    assert [list(each.scores) for each in stream] == [[], [20], [30, 31]]
    (only,) = pieces(rehearsal.protocol().score_many("org/m", [("q", ["6", "7"])], QUIET), server)
    assert [(each.query, each.place) for each in only.failed] == [(0, 1)]
    assert [str(score) for score in only.scores] == ["6.0", "nan"]


@pytest.mark.parametrize(
    ("name", "items", "settings", "wrong"),
    [
        ("encode_many", "one", {}, "items is one str; give a list"),
        ("encode_many", {"text": "one"}, {}, "items is one dict"),
        ("encode_many", 7, {}, "items is one int"),
        ("encode_many", [], {"batch_size": 0}, "batch_size is 0 and parallel 4; 1 is the least"),
        ("encode_many", [], {"parallel": 0}, "parallel 0"),
        ("encode_many", [], {"output_types": "dense"}, "output_types is the string"),
        ("encode_many", [], {"labels": ["a"]}, r"encode_many\(\) takes no argument 'labels'; it takes batch_size, "),
        ("extract_many", "one", {}, "items is one str; give a list"),
        ("extract_many", [], {"labels": "a"}, "labels is the string"),
        ("score_many", "one", {}, "queries is one str"),
        ("score_many", [("q", "one")], {}, r"queries\[0\]\[1\] is one str"),
        ("score_many", ["one"], {}, r"queries\[0\] is no pair of a query and its documents"),
        ("score_many", [("q", ["a"], 7)], {}, r"queries\[0\] is no pair"),
        ("score_many", [7], {}, r"queries\[0\] is no pair"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(rehearsal, name, items, settings, wrong):
    server = Server()
    with pytest.raises((TypeError, ValueError), match=wrong):
        run(getattr(rehearsal.protocol(), name)("org/m", items, QUIET | settings), server)
    assert server.asked == []


def test_an_id_that_names_another_route_is_refused_before_any_item_is_read(rehearsal):
    for name in ("encode_many", "score_many"):
        with pytest.raises(ValueError, match="no model id"):
            getattr(rehearsal.protocol(), name)("../x", iter([]), QUIET)


def test_a_bar_counts_items_where_there_is_one(rehearsal, capsys):
    encode(rehearsal, ["x"] * 5, Server(), batch_size=2, progress=True)
    assert "5/5" in capsys.readouterr().err
    encode(rehearsal, ["x"], Server(), progress=None)
    assert capsys.readouterr().err == "", "a bar was written to what is no terminal"


def test_a_bar_is_asked_for_where_there_is_none(rehearsal, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert encode(rehearsal, ["x"], Server(), progress=None).failed == []
    with pytest.raises(ImportError, match="progress=True needs tqdm: pip install tqdm"):
        encode(rehearsal, ["x"], Server(), progress=True)


def test_scores_of_other_documents_than_were_sent_are_no_answer(rehearsal):
    odd = answer({"model": "m", "scores": [{"item_id": "5", "score": 1, "rank": 0}]})
    many = score(rehearsal, [("p", ["1"]), ("q", ["2"])], Server(lambda texts: odd if "2" in texts else None))
    assert [(each.query, each.place) for each in many.failed] == [(1, 0)]
    assert json.dumps(many.results[1]["scores"]) == "[]"
