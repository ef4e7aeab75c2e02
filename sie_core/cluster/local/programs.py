"""The programs of a cluster on one machine, all in one folder: broker, gateway and workers."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sie_core.cluster.access import CONFIG, accesses, queues, user_name
from sie_core.cluster.broker import declare_queues, transport_maker
from sie_core.cluster.processes import Program, sie
from sie_core.contracts import Access, LocalBroker, PluginError
from sie_core.plugins import PluginSet
from sie_core.settings import Settings, queue_variables, variable, with_broker

BEAT_MS = "1000"
"""Between heartbeats where the settings do not say: whoever looks at the table waits for them."""
MOST_SOCKET_PATH = 103
"""Bytes of a Unix socket's path that every system takes."""


@dataclass(frozen=True, slots=True)
class Programs:
    """They end in the order gateway, workers, broker."""

    broker: Program
    gateway: Program
    workers: tuple[Program, ...]
    make_queues: Callable[[], Awaitable[None]]
    """Makes the queues once the broker is there: neither gateway nor workers may."""

    @property
    def all(self) -> tuple[Program, ...]:
        """Every program."""
        return (self.broker, self.gateway, *self.workers)


def describe_programs(settings: Settings, plugins: PluginSet, folder: Path, workers: int, files: ExitStack) -> Programs:
    """Describe the programs; nothing is started.

    Args:
        settings: The settings in force; the programs have the same but for what is said here.
        plugins: One of them must have a broker for this machine.
        folder: Where logs, sockets and the broker's files go.
        workers: How many.
        files: Closes the logs, and removes a folder that is made for sockets.

    Raises:
        PluginError: No broker can be run here.
    """
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    users = accesses(settings.pool, workers=dict.fromkeys(names, settings.pool))
    broker = _broker(plugins, folder, users)
    sockets = folder
    if any(len(bytes(_socket(folder, name))) > MOST_SOCKET_PATH for name in names):
        sockets = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="sie-", ignore_cleanup_errors=True)))
    shared = {variable("health_publish_interval_ms"): BEAT_MS, variable("log_level"): settings.log_level}
    shared |= {variable(name): _text(getattr(settings, name)) for name in settings.model_fields_set}

    def program(name: str, command: list[str], user: str | None = None, **own: Any) -> Program:
        log = files.enter_context((folder / f"{name}.log").open("ab"))
        if user is None:
            return Program(name, command, {}, log)
        queue = queue_variables(broker.url, broker.logins[user])
        return Program(name, command, {**shared, **queue, **{variable(key): _text(v) for key, v in own.items()}}, log)

    return Programs(
        program("broker", list(broker.command)),
        program("gateway", sie("gateway"), "gateway", http_host=settings.http_host, http_port=settings.http_port),
        tuple(
            program(
                name,
                sie("worker", "--with-sidecar"),
                user_name("worker", name),
                worker_id=name,
                http_host="127.0.0.1",
                http_port=0,
                worker_metrics_port=0,
                ipc_socket_path=_socket(sockets, name),
            )
            for name in names
        ),
        partial(
            declare_queues,
            transport_maker(with_broker(settings, broker.url, broker.logins[CONFIG]), plugins),
            queues([settings.pool]),
        ),
    )


def _socket(folder: Path, worker: str) -> Path:
    return folder / f"{worker}.sock"


def _broker(plugins: PluginSet, folder: Path, users: list[Access]) -> LocalBroker:
    problems = []
    for factory in plugins.queue_transports.values():
        if factory.local is not None:
            try:
                return factory.local(folder, users)
            except ValueError as error:
                problems.append(f"{factory.scheme}://: {error}")
    why = "; ".join(problems) or "no installed plugin has one"
    raise PluginError(f"No broker can be run on this machine: {why}.")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
