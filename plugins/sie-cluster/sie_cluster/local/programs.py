"""The programs of a cluster on one machine, all in one folder: broker, config service, gateway and workers."""

from __future__ import annotations

import secrets
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from sie_cluster.local.bundles import LocalBundles
from sie_cluster.programs.processes import Program, sie
from sie_cluster.queue.access import CONFIG, accesses, queues, user_name
from sie_cluster.queue.broker import declare_queues, transport_maker
from sie_cluster.settings import ClusterSettings, queue_variables, with_broker
from sie_core.contracts import Access, LocalBroker, PluginError
from sie_core.plugins import PluginSet
from sie_core.serving.listening import reserve
from sie_core.settings import FILE, is_secret, variable

BEAT_MS, POLL_MS = "1000", "5000"
"""Between heartbeats, and looks at the config service, where the settings do not say: whoever looks at the table waits
for them."""
BY_HAND = ".env"
"""What follows the name of a worker in that of the file with its variables, where it is started by hand."""
OPERATOR_FILE = "operator.env"
"""Has the broker's login, the token and, once they are known, the URLs, for the commands of an operator."""
TOKEN_FILE, POOL_TOKEN_FILE = "admin-token", "pool-token"
OF_CONFIG_SERVICE = ("models_dir", "config_store_dir", "admin_token")
"""Settings that are for the config service; what others would inherit of them is emptied."""
CONFIG_HOST = "127.0.0.1"
MOST_SOCKET_PATH = 103
"""Bytes of a Unix socket's path that every system takes."""


@dataclass(frozen=True, slots=True)
class Programs:
    """They end in the order gateway, workers, config service, brokers."""

    brokers: tuple[Program, ...]
    config: Program
    gateway: Program
    workers: tuple[Program, ...]
    bundles: Mapping[str, str]
    """By worker."""
    make_queues: Callable[[], Awaitable[None]]
    """Makes the queues once the broker is there: neither gateway nor workers may."""

    @property
    def all(self) -> tuple[Program, ...]:
        """Every program."""
        return (*self.brokers, self.config, self.gateway, *self.workers)


def describe_programs(
    settings: ClusterSettings,
    plugins: PluginSet,
    folder: Path,
    workers: int,
    files: ExitStack,
    *,
    bundles: LocalBundles,
    config_port: int,
    brokers: int = 1,
) -> Programs:
    """Describe the programs; nothing is started.

    Args:
        settings: The settings in force; the programs have the same but for what is said here.
        plugins: One of them must have a broker for this machine.
        folder: Where logs, sockets, the broker's files and what the config service is told go.
        workers: How many of each bundle; 0: none, and for one of each a file of variables to start it with.
        files: Closes the logs, removes a folder that is made for sockets, and keeps the broker's port until then.
        bundles: Those that have workers.
        config_port: That of the config service.
        brokers: How many, each of which has a copy of everything.

    Raises:
        ListenError: A broker's port is taken.
        PluginError: No broker can be run here.
    """
    bundle_of = {
        f"worker-{number}": bundle
        for number, bundle in enumerate((each for each in bundles.names for _ in range(max(1, workers))), 1)
    }
    users = accesses(settings.pool, workers=dict.fromkeys(bundle_of, settings.pool))
    broker = _broker(plugins, folder, users, brokers)
    for at in map(urlsplit, broker.url.split(",")):
        if at.port is not None:
            files.enter_context(reserve(at.hostname or "localhost", at.port))
    if brokers > 1:
        settings = settings.model_copy(update={"nats_replicas": brokers})
    sockets = folder
    if any(len(bytes(_socket(folder, name))) > MOST_SOCKET_PATH for name in bundle_of):
        sockets = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="sie-", ignore_cleanup_errors=True)))
    shared, of_config = _variables(settings, folder, bundles, config_port)

    def variables(user: str, **own: Any) -> dict[str, str]:
        queue = queue_variables(broker.url, broker.logins[user])
        return _by_files(settings, {**shared, **queue, **{variable(key): _text(value) for key, value in own.items()}})

    def program(name: str, command: list[str], own: Mapping[str, str]) -> Program:
        return Program(name, command, own, files.enter_context((folder / f"{name}.log").open("ab")))

    of_workers = {
        name: variables(
            user_name("worker", name),
            worker_id=name,
            bundle=bundle,
            http_host="127.0.0.1",
            http_port=0,
            worker_metrics_port=0,
            ipc_socket_path=_socket(sockets, name),
        )
        for name, bundle in bundle_of.items()
    }
    login = queue_variables(broker.url, broker.logins[CONFIG])
    # A token that the shell has may be given by one of the two alone.
    token = {"SIE_ADMIN_TOKEN_FILE": str((folder / TOKEN_FILE).absolute()), "SIE_ADMIN_TOKEN": ""}
    _write_variables(folder / OPERATOR_FILE, {**login, **token})
    for name, own in of_workers.items():
        (folder / (name + BY_HAND)).unlink(missing_ok=True)
        if not workers:
            _write_variables(folder / (name + BY_HAND), own)
    names = ["broker"] if brokers == 1 else [f"broker-{number}" for number in range(1, brokers + 1)]
    return Programs(
        tuple(program(name, list(each), {}) for name, each in zip(names, broker.commands, strict=True)),
        program("config", sie("config", "serve"), variables(CONFIG, **of_config)),
        program("gateway", sie("gateway"), variables("gateway", **_of_gateway(settings, folder))),
        tuple(program(name, sie("worker", "--with-sidecar"), own) for name, own in of_workers.items() if workers),
        bundle_of,
        partial(
            declare_queues,
            transport_maker(with_broker(settings, broker.url, broker.logins[CONFIG]), plugins),
            queues([settings.pool]),
        ),
    )


def _variables(
    settings: ClusterSettings, folder: Path, bundles: LocalBundles, config_port: int
) -> tuple[dict[str, str], dict[str, Any]]:
    """Give the variables of all programs, and the settings that the config service has beside them.

    The token that writes is random unless it is set, and lies in a file that its owner alone may read.
    """
    read_token = _secret(settings.config_read_token) or secrets.token_urlsafe(24)
    admin_token = _kept(folder / TOKEN_FILE, settings, "admin_token")
    of_config: dict[str, Any] = {
        name: getattr(settings, name) for name in OF_CONFIG_SERVICE if name in settings.model_fields_set
    }
    of_config |= {
        "http_host": CONFIG_HOST,
        "http_port": config_port,
        "bundles_dir": bundles.folder,
        "admin_token": admin_token,
    }
    of_config.setdefault("config_store_dir", folder / "config-store")
    shared = {
        variable("health_publish_interval_ms"): BEAT_MS,
        variable("worker_config_poll_interval_ms"): POLL_MS,
        variable("log_level"): settings.log_level,
    }
    shared |= {variable(name): _text(getattr(settings, name)) for name in settings.model_fields_set}
    # Each program has the secrets that are its own, and none by a file that this one was told of.
    secret = [variable(name) + FILE for name in ClusterSettings.model_fields if is_secret(ClusterSettings, name)]
    shared |= dict.fromkeys((*map(variable, (*OF_CONFIG_SERVICE, "pool_token")), *secret), "")
    shared[variable("nats_replicas")] = str(settings.nats_replicas)
    shared |= {
        variable("config_read_token"): read_token,
        variable("config_service_url"): f"http://{CONFIG_HOST}:{config_port}",
    }
    return shared, of_config


def _by_files(settings: ClusterSettings, given: dict[str, str]) -> dict[str, str]:
    """Name the file of each secret that was read from one, so that the program reads it again when it changes."""
    for field in ClusterSettings.model_fields:
        name, file = variable(field), settings.file_of(field)
        if file is not None and given.get(name) == _text(getattr(settings, field)):
            given |= {name: "", name + FILE: str(file.absolute())}
    return given


def _of_gateway(settings: ClusterSettings, folder: Path) -> dict[str, Any]:
    """Give the settings that the gateway alone has; where clients need tokens, it needs that of pools."""
    own: dict[str, Any] = {"http_host": settings.http_host, "http_port": settings.http_port}
    if settings.auth_mode == "none":
        return own
    return own | {"pool_token": _kept(folder / POOL_TOKEN_FILE, settings, "pool_token")}


def _kept(file: Path, settings: ClusterSettings, field: str) -> str:
    """Keep a token, random unless it is given, in a file that its owner alone may read; return it."""
    plain = _secret(getattr(settings, field)) or secrets.token_urlsafe(24)
    file.unlink(missing_ok=True)
    if (given := settings.file_of(field)) is not None:
        file.symlink_to(given.absolute())  # it may change there, and is read again
    else:
        file.touch(mode=0o600)
        file.write_text(plain + "\n")
    return plain


def _write_variables(file: Path, own: Mapping[str, str]) -> None:
    """Write a file for a shell, which its owner alone may read: it holds passwords."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(own.items())))


def _socket(folder: Path, worker: str) -> Path:
    return folder / f"{worker}.sock"


def _broker(plugins: PluginSet, folder: Path, users: list[Access], brokers: int) -> LocalBroker:
    problems = []
    for factory in plugins.queue_transports.values():
        if factory.local is not None:
            try:
                return factory.local(folder, users, brokers)
            except ValueError as error:
                problems.append(f"{factory.scheme}://: {error}")
    why = "; ".join(problems) or "no installed plugin has one"
    raise PluginError(f"No broker can be run on this machine: {why}.")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
