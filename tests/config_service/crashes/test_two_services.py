"""Two services on one store: a write of one that stands still is validated again upon what the other wrote."""

from __future__ import annotations

import json
import os
import signal

from tests.config_service.conftest import log_on, post, service_on
from tests.config_service.crashes.processes import Nursery, open_at, until


def test_a_service_that_is_stopped_in_a_write_writes_upon_what_another_wrote_meanwhile(
    processes: Nursery, place: str
) -> None:
    extra = post("org/a", {"extra": {"adapter_path": "thorough"}}).decode()
    writes = [["create", post("org/a").decode()], ["create", extra]]
    pid, told = processes.run(place, writes, "validated", signal.SIGSTOP)
    assert processes.wait(pid) == "stopped"
    second = service_on(log_on(open_at(place)), name="two")
    second.read_on()
    assert second.put("org/a", post("org/a", license="x")).body["epoch"] == 2
    assert second.create(post("org/b"), "key").body["epoch"] == 3
    os.kill(pid, signal.SIGCONT)
    until(lambda: told.read_text().count("\n") == 2, "the first does not go on")
    first, late = map(json.loads, told.read_text().splitlines())
    assert (first[0], first[1]["epoch"], late[0], late[1]["epoch"]) == (201, 1, 201, 4)
    second.read_on()
    assert second.registry.epochs == {"org/a": 4, "org/b": 3}
    content = second.state.models["org/a"].content
    assert (content["license"], sorted(content["profiles"])) == ("x", ["default", "extra"])
    assert second.create(post("org/b"), "key").body["epoch"] == 3
