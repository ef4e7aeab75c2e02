"""`SIE_RUNNER` among the registered runners."""

import pytest

from sie_core.contracts import PluginError, RunnerSpec
from sie_core.plugins.selection import require_runner

PLAIN = RunnerSpec("plain", "some.runner/1", "some:Runner")


@pytest.mark.parametrize("wanted", ["auto", "priority", "plain"])
def test_a_registered_runner_can_be_asked_for(wanted):
    require_runner(wanted, [PLAIN])


def test_one_that_is_not_registered_stops_the_start_with_those_there_are():
    with pytest.raises(PluginError, match="SIE_RUNNER=plane is no registered runner; there are auto, priority, plain"):
        require_runner("plane", [PLAIN])
