"""The autoscaling page names every number an autoscaler reads, and adds it over gateways as its help does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sie_cluster.gateway.capacity.numbers import ABOUT

PAGE = (Path(__file__).parents[2] / "docs/operate/cluster/autoscaling.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `sie_gateway_(\w+?)(?:_total)?` \|.*\| (\w+) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", ABOUT)
def test_the_page_adds_a_number_as_its_help_does(name: str) -> None:
    assert ABOUT[name].endswith(f"Over gateways: {ROWS[name]}.")


def test_the_page_names_no_others() -> None:
    assert set(ROWS) == set(ABOUT)
