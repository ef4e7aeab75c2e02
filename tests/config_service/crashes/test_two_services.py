"""Two services on one store: one leads, and what a stopped one goes on to write is refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from sie_cluster.config_service.service import ConfigService

from tests.config_service.conftest import SHIPPED, base, error_of, placement, post
from tests.config_service.crashes.processes import Nursery, open_at, until

LASTS_S = 2.0


@pytest.mark.parametrize(("step", "ends"), [("validated", True), ("stored", False)])
def test_a_service_that_is_stopped_in_a_write_for_longer_than_its_lease_writes_nothing_more(
    processes: Nursery, place: str, step: str, ends: bool, tmp_path: Path
) -> None:
    writes = [["create", post("org/a").decode()], ["wait", str(tmp_path / "go")], ["create", post("org/lost").decode()]]
    pid, told = processes.run(place, "first", LASTS_S, writes, step, signal.SIGSTOP, ends=ends)
    until(lambda: told.read_text().count("\n") == 1, "the first does not lead")
    second = ConfigService(base(SHIPPED), placement(), open_at(place), owner="second", lasts_s=30.0)
    try:
        second.start()
        assert (second.state, second.owner) == ("standby", "first")
        assert error_of(lambda: second.create(post("org/b"))) == error_of(second.export) == "config_standby"
        (tmp_path / "go").touch()
        assert processes.wait(pid) == "stopped"
        until(lambda: second.look() is None and second.state == "leading", "the lease never ends")
        assert second.create(post("org/b")).body["epoch"] == 2
        os.kill(pid, signal.SIGCONT)
        until(lambda: told.read_text().count("\n") == 2, "the first does not go on")
        assert second.create(post("org/c"), "key").body["epoch"] == 3
    finally:
        os.kill(pid, signal.SIGKILL)
        second.stop()
    wrote, refused = map(json.loads, told.read_text().splitlines())
    assert (wrote[0], wrote[1]["epoch"]) == (201, 1)
    assert refused == ["config_standby", "second"]
    third = ConfigService(base(SHIPPED), placement(), open_at(place), owner="third", lasts_s=30.0)
    try:
        third.start()
        assert third.registry.epochs == {"org/a": 1, "org/b": 2, "org/c": 3}
        assert third.create(post("org/c"), "key").body["epoch"] == 3
    finally:
        third.stop()
