"""Two releases side by side under load: programs are replaced one by one, and no request of the SDK fails.

`python -m tests.soak.releases` does it in every order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.releases.building import install, older
from tests.soak.releases.cluster import Mixed, mixed
from tests.soak.releases.replacing import replace

CLIENTS = 8
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    commit = older()
    if commit is None:
        pytest.skip("this tree has no history to build an older release from")
    with mixed(tmp_path_factory.mktemp("mixed"), install(commit, tmp_path_factory.mktemp("old"))) as cluster:
        yield cluster


def test_programs_of_two_releases_answer_together_while_they_are_replaced(cluster: Mixed) -> None:
    """In the order that docs/operate/cluster/operate.md gives."""
    assert replace(cluster, ("sidecar", "worker", "gateway"), "new", CLIENTS).wrong == ()
