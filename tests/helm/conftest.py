"""Helm's engine, and what it renders of the matrix, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helm.engine import CHART, Document, Helm, documents, helm_running
from tests.helm.matrix import every_choice

LONGEST = "a-release-whose-name-is-as-long-as-helm-lets-it-be-so"


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    with helm_running() as running:
        yield running


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> dict[str, list[Document]]:
    """Every row of the matrix, the shipped values files, and the longest names, by what was given."""
    found = {f"{values}": documents(helm.texts(values)) for values in every_choice()}
    for file in sorted(CHART.glob("values-*.yaml")):
        found[file.name] = helm.render(files=[file])
    pools = {"a-pool-whose-name-is-long-as-well-so-that-it-is-cut-" + "x" * 10: {"machineProfile": "a100-80gb"}}
    found["longest names"] = helm.render({"workers": {"pools": pools}}, name=LONGEST)
    return found
