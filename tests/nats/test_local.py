"""The broker that `sie cluster up` runs is configured as any other, with a random password for each user."""

from __future__ import annotations

import json
from pathlib import Path

from sie_cluster.queue.access import accesses
from sie_nats.broker.local import local_broker

USERS = {"gateway", "worker.worker-1", "worker.worker-2", "config"}


def test_each_program_has_a_user_and_the_file_with_passwords_is_its_owner_s_alone(tmp_path: Path) -> None:
    users = accesses("_default", workers={"worker-1": "_default", "worker-2": "_default"})
    broker = local_broker(tmp_path, users)
    config = tmp_path / "nats.conf"
    assert config.stat().st_mode & 0o777 == 0o600
    told = json.loads(config.read_text())
    assert {each["user"]: each["password"] for each in told["authorization"]["users"]} == {
        user: login["password"] for user, login in broker.logins.items()
    }
    assert broker.logins.keys() == USERS
    assert told["host"] == "127.0.0.1"
    again = local_broker(tmp_path, users)
    assert again.logins["gateway"]["password"] != broker.logins["gateway"]["password"]
