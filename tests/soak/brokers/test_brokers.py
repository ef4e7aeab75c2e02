"""Three brokers whose leaders are cut off, stepped down and killed under load: no answer is lost, and all heals.

`python -m tests.soak.brokers` does every act ten times, and prints what clients saw.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sie_cluster.gateway.flights.dispatcher import ELECTION_S

from tests.soak.brokers.cluster import Struck, struck
from tests.soak.brokers.striking import STEPPED_DOWN, Outcome, strike, two_away

CLIENTS = 8
MOST_SILENT_S = 60.0
"""The bar of the long form is 15 s; other tests share the cores with this one."""
AWAY_S = 13.0
"""Gateways know after ten seconds that no broker stores anything."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    with struck(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


def test_leaders_that_step_down_or_are_cut_off_cost_no_answer(cluster: Struck) -> None:
    for outcome, away_s in ((Outcome(STEPPED_DOWN, "meta"), 0.0), (Outcome(STEPPED_DOWN, "stream"), 0.0),
                            (Outcome("cut off", "stream"), AWAY_S)):  # fmt: skip
        strike(cluster, outcome, CLIENTS, away_s)
        assert outcome.wrong == []
        assert max(outcome.silences_s) < MOST_SILENT_S


def test_with_two_of_three_away_requests_are_refused_by_type_at_once_and_all_goes_on_once_they_are_back(
    cluster: Struck,
) -> None:
    seen = two_away(cluster, CLIENTS, AWAY_S)
    assert seen.refusals > 0
    assert seen.slowest_s < ELECTION_S, "none waits for another leader"
    assert any("the broker stores no work" in each for each in seen.told)
