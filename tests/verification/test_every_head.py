"""Every head of every architecture answers as its reference library does: in this process, and to both clients."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sie_sdk import SIEClient

from sie_core.catalog import see
from sie_core.catalog.info import describe
from sie_core.verification import Report
from sie_core.verification.asking import Answers
from sie_core.verification.referring import References
from sie_core.verification.verifying import TOLERANCES, compare
from tests.clients.published import PublishedClient
from tests.verification.conftest import Parts, Reverify, Verified, Verify
from tests.verification.over_http import ask
from tests.verification.tiny import TINY
from tests.verification.unplaced import UnplacedReferences, unplaced


@pytest.fixture(scope="module", params=TINY)
def model(request: pytest.FixtureRequest, verified: Verify) -> Verified:
    """Each tiny model in turn: all its tests, before the next is loaded."""
    return verified(request.param)


def assert_verified(report: Report) -> None:
    assert report.verdict == "verified", "\n".join(report.lines())
    assert report.precision == "float32"


def told(client: SIEClient | PublishedClient, model: Verified) -> list[Answers]:
    return [ask(client, model.report.model, each.question) for each in model.served.answers]


def assert_answered(model: Verified, answers: Sequence[Answers], references: References) -> None:
    over_http = compare(replace(model.served, answers=tuple(answers)), references, {})
    assert_verified(over_http)
    assert [(row.output, row.asked) for row in over_http.rows] == [(row.output, row.asked) for row in model.report.rows]


def test_a_model_answers_as_its_reference_does(model: Verified) -> None:
    assert_verified(model.report)


def test_what_is_listed_before_a_load_is_what_it_comes_to(model: Verified, parts: Parts) -> None:
    resolved, loaded = parts.catalog.resolve(model.report.model), model.served.info
    seen = see(resolved, parts.weights, parts.plugins, model.served.device)
    assert seen is not None
    listed = describe(resolved, seen.facts, parts.plugins.postprocessors, available=True)
    assert (listed.state, listed.available) == ("available", True)
    assert (listed.inputs, listed.outputs, listed.operations) == (loaded.inputs, loaded.outputs, loaded.operations)
    assert (listed.dims, listed.matryoshka_dims) == (loaded.dims, loaded.matryoshka_dims)
    assert listed.classes == loaded.classes
    if listed.max_sequence_length is not None:
        assert listed.max_sequence_length == loaded.max_sequence_length


def test_our_own_client_gets_the_same(model: Verified, client: SIEClient) -> None:
    assert_answered(model, told(client, model), model.references)


@pytest.mark.client
@pytest.mark.timeout(600)
def test_the_published_client_gets_the_same(model: Verified, published_client: PublishedClient) -> None:
    answers = told(published_client, model)
    # Of a relation it tells the texts and drops where they stand. Everything else is as our own client has it.
    assert all(relation.head_span is None for each in answers for one in each.alone for relation in one.relations or ())
    unplaced_answers = [replace(each, together=unplaced(each.together), alone=unplaced(each.alone)) for each in answers]
    assert_answered(model, unplaced_answers, UnplacedReferences(model.references))


def test_each_output_is_held_against_the_library_that_gives_it(verified: Verify) -> None:
    rows = verified("tiny/bge-m3-xlm-roberta").report.rows
    assert {row.output: row.reference for row in rows} == {
        "dense": "sentence-transformers",
        "sparse": "bge-m3-paper",
        "multivector": "bge-m3-paper",
        "score": "bge-m3-paper",
    }
    assert [row.asked for row in rows if row.output == "sparse"] == ["text", "as query", "as document"]


def test_another_precision_has_a_tolerance_of_its_own(verify: Reverify) -> None:
    report = verify("tiny/dense-bert", "bfloat16")
    assert report.verdict == "verified", "\n".join(report.lines())
    assert {row.tolerance for row in report.rows} == {TOLERANCES[report.precision]}
