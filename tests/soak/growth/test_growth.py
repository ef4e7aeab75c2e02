"""A real server at work: it keeps its memory, its files and its threads; and a soak sees one that does not."""

from __future__ import annotations

import pytest

from tests.soak.growth.mix import ANSWERED, EVERYTHING
from tests.soak.growth.report import page
from tests.soak.growth.soaking import Outcome, Plan, soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def soaked(plan: Plan) -> Outcome:
    outcome = soak(plan)
    print(page(outcome))
    return outcome


def test_a_server_at_work_does_not_grow_and_answers_everything_as_it_should():
    outcome = soaked(Plan(seconds=38, rate=12))
    assert outcome.surprises == []
    assert outcome.growing() == []
    assert set(outcome.answers) <= {kind.name for kind in EVERYTHING} | {"loads"}
    assert all(outcome.answers[kind.name]["200"] for kind in ANSWERED)
    assert outcome.evictions["load"] >= len(outcome.rests)
    assert outcome.evictions["background"] >= len(outcome.rests)


def test_a_server_that_leaks_a_megabyte_a_request_is_found_out():
    outcome = soaked(Plan(seconds=9, mix="leak", rate=12))
    assert {"rss", "anonymous"} >= set(outcome.growing()) >= {"rss"}
    assert outcome.surprises == []
