"""Every head of every architecture answers as its reference library does: in this process, and over HTTP."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sie_sdk import SIEClient

from sie_core.verification.verifying import TOLERANCES, compare
from tests.verification.conftest import Verify
from tests.verification.over_http import ask
from tests.verification.tiny import TINY


@pytest.mark.parametrize("name", TINY)
def test_a_model_answers_as_its_reference_does_in_process_and_over_http(
    name: str, verify: Verify, load: Callable[[str], None], client: SIEClient
) -> None:
    report, served, references = verify(name)
    assert report.verdict == "verified", "\n".join(report.lines())
    assert report.precision == "float32"
    load(name)
    answers = tuple(ask(client, name, each.question) for each in served.answers)
    over_http = compare(replace(served, answers=answers), references, {})
    assert over_http.verdict == "verified", "\n".join(over_http.lines())
    assert [(row.output, row.asked) for row in over_http.rows] == [(row.output, row.asked) for row in report.rows]


def test_each_output_is_held_against_the_library_that_gives_it(verify: Verify) -> None:
    rows = verify("tiny/bge-m3-xlm-roberta").report.rows
    assert {row.output: row.reference for row in rows} == {
        "dense": "sentence-transformers",
        "sparse": "bge-m3-paper",
        "multivector": "bge-m3-paper",
        "score": "bge-m3-paper",
    }
    assert [row.asked for row in rows if row.output == "sparse"] == ["text", "as query", "as document"]


def test_another_precision_has_a_tolerance_of_its_own(verify: Verify) -> None:
    report = verify("tiny/dense-bert", "bfloat16").report
    assert report.verdict == "verified", "\n".join(report.lines())
    assert {row.tolerance for row in report.rows} == {TOLERANCES[report.precision]}
