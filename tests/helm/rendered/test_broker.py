"""The broker's configuration: what each user may do is what the code says, and the broker itself reads it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sie_cluster.queue.access import config_access, gateway_access, worker_access
from sie_nats.broker.permissions import MAX_PAYLOAD, permissions

from tests.helm.engine import CHART, Helm, one

ROLES = ("gateway", "worker", "config")
PASSWORDS = {f"{role.upper()}_PASSWORD": f"s{role}0" for role in ROLES}


def access(pool: str) -> dict[str, dict[str, list[str]]]:
    users = (gateway_access([pool]), worker_access(pool), config_access([pool]))
    return {each.user: {verb: lists["allow"] for verb, lists in permissions(each).items()} for each in users}


def test_the_file_of_permissions_says_what_the_code_does() -> None:
    assert json.loads((CHART / "files/broker-access.json").read_text()) == access("POOL")


def test_each_queue_pool_has_its_subjects(helm: Helm) -> None:
    conf = one(helm.render({"workers": {"pools": {"cpu": {"queuePool": "slow"}}}}), "ConfigMap", "sie-nats")
    conf = conf["data"]["nats.conf"]
    for role in ROLES:
        (block,) = re.findall(rf"^    \{{\n      user: {role}\n(.*?)^    \}}", conf, re.DOTALL | re.MULTILINE)
        for verb in ("publish", "subscribe"):
            (listed,) = re.findall(rf"{verb}: \{{ allow: \[\n(.*?)\] \}}", block, re.DOTALL)
            wanted = {subject for pool in ("_default", "slow") for subject in access(pool)[role][verb]}
            assert sorted(json.loads(each) for each in listed.split("\n") if each.strip()) == sorted(wanted)
    assert f"max_payload: {MAX_PAYLOAD}\n" in conf


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("users", [True, False])
def test_the_broker_reads_it(replicas: int, users: bool, helm: Helm, tmp_path: Path) -> None:
    found = helm.render({"nats": {"replicas": replicas, "users": users}})
    conf = tmp_path / "nats.conf"
    text = one(found, "ConfigMap", "sie-nats")["data"]["nats.conf"]
    conf.write_text(text.replace("/data", f"{tmp_path}/data").replace("/run/nats", f"{tmp_path}"))
    (container,) = one(found, "StatefulSet", "sie-nats")["spec"]["template"]["spec"]["containers"]
    env = {"POD_NAME": "sie-nats-0", "ROUTE_PASSWORD": "sroute", **(PASSWORDS if users else {})}
    for each in container["env"]:
        if "value" in each:
            env[each["name"]] = each["value"].replace("$(ROUTE_PASSWORD)", "sroute")
    assert {each["name"] for each in container["env"]} <= set(env)
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
    done = subprocess.run([server, "-t", "-c", conf], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert (f"nats://route:$(ROUTE_PASSWORD)@sie-nats-{replicas - 1}.sie-nats:6222" in str(container["env"])) == (
        replicas > 1
    )
