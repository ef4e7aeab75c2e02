"""The programs in the way of every request look for cycles seldom."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from sie_cluster.gateway.run import run_gateway
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.run import run_sidecar

from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.serving.garbage import COLLECT_EVERY
from sie_core.settings import SettingsError


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("program", [run_gateway, run_sidecar])
def test_gateways_and_sidecars_set_their_thresholds_at_the_start(
    program: Callable[[ClusterSettings, PluginSet], None],
) -> None:
    with pytest.raises(SettingsError, match="SIE_NATS_URL"):
        program(ClusterSettings(), discover(ClusterSettings(), BUILTINS))
    assert gc.get_threshold() == COLLECT_EVERY
