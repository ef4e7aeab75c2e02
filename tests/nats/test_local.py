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


def test_several_brokers_know_one_another_by_a_password_of_their_own(tmp_path: Path) -> None:
    broker = local_broker(tmp_path, accesses("_default", workers={"worker-1": "_default"}), 3)
    told = [json.loads((tmp_path / f"nats-{number}.conf").read_text()) for number in (1, 2, 3)]
    assert broker.url.split(",") == [f"nats://127.0.0.1:{each['port']}" for each in told]
    assert [each["server_name"] for each in told] == ["nats-1", "nats-2", "nats-3"]
    assert len({each["jetstream"]["store_dir"] for each in told}) == 3
    for each in told:
        login = each["cluster"]["authorization"]
        at = [f"nats://{login['user']}:{login['password']}@127.0.0.1:{other['cluster']['port']}" for other in told]
        assert each["cluster"]["routes"] == at
        assert each["cluster"]["host"] == "127.0.0.1"
    assert told[0]["authorization"] == told[1]["authorization"] == told[2]["authorization"]
    assert len({each[-1] for each in broker.commands}) == 3
