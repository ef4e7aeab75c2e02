"""Runs a whole cluster on one machine until a signal; what ends is started again, and all of it ends with this process.

Nothing here knows what the programs do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from sie_cluster.local.bundles import local_bundles
from sie_cluster.local.logs import rotate_logs
from sie_cluster.local.programs import CONFIG_HOST, Programs, describe_programs
from sie_cluster.local.table import Table, ask, heard_workers
from sie_cluster.programs.processes import pass_on_hangups
from sie_cluster.settings import ClusterSettings
from sie_core.auth import client_token
from sie_core.concurrency.tasks import within
from sie_core.contracts import PluginError
from sie_core.plugins import PluginSet
from sie_core.serving.draining import draining_signals
from sie_core.serving.listening import reserve
from sie_core.settings import SettingsError

START_S = 120.0
END_S = 5.0
"""What a program may take to end beyond its drain."""
LOOK_S = 0.2
SHOW_S = 1.0
LOG_LINES = 15

OnReady = Callable[[str, str], None]
Result = TypeVar("Result")

log = logging.getLogger("sie_cluster")


def run_cluster(
    settings: ClusterSettings,
    plugins: PluginSet,
    folder: Path,
    workers: int,
    on_ready: OnReady,
    show: Callable[[list[str]], None] | None,
    *,
    bundles: Sequence[str] = (),
    config_port: int = 0,
    brokers: int = 1,
) -> None:
    """Run it until a signal that drains; a second one, but for SIGHUP, ends all at once.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        folder: Where logs, sockets, the broker's files and what the config service is told go.
        workers: How many of each bundle.
        on_ready: Called with the URLs of gateway and config service once every worker takes work.
        show: Called each second with lines that describe the processes; None shows nothing.
        bundles: Those that have workers; none: one that serves all models.
        config_port: That of the config service; 0 takes a free one.
        brokers: How many.

    Raises:
        ListenError: A port is taken.
        SettingsError: There is no such bundle, or another config service is named.
        PluginError: No broker can be run here, another cluster runs in the folder or it cannot be written to, or a
            program ended at its start.
    """
    if settings.config_service_url is not None:
        raise SettingsError(
            f"SIE_CONFIG_SERVICE_URL={settings.config_service_url}: `sie cluster up` runs a config service of its own. "
            "Unset it, or start gateway and workers by themselves."
        )
    lock = FileLock(folder / "lock")
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise PluginError(f"Another cluster runs in {folder}; name another folder with --folder.") from None
    with (
        lock,
        contextlib.ExitStack() as files,
        reserve(settings.http_host, settings.http_port) as (url, port),
        reserve(CONFIG_HOST, config_port, chosen_by="--config-port") as (config_url, config_port),
    ):
        settings = settings.model_copy(update={"http_port": port})
        whole = folder.resolve()
        with _writing(folder):
            chosen = local_bundles(settings, plugins, whole, bundles)
            programs = describe_programs(
                settings, plugins, whole, workers, files, bundles=chosen, config_port=config_port, brokers=brokers
            )
        ready = partial(on_ready, url, config_url)
        asyncio.run(_run(programs, folder, Table(programs, url, client_token(settings)), settings, ready, show))


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Write to the folder within the block.

    Raises:
        PluginError: It does not take that.
    """
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or folder}"
        raise PluginError(f"{folder} cannot be written to ({what}); name another folder with --folder.") from None


async def _run(
    programs: Programs,
    folder: Path,
    table: Table,
    settings: ClusterSettings,
    on_ready: Callable[[], None],
    show: Callable[[list[str]], None] | None,
) -> None:
    asked, drain_s = asyncio.Event(), settings.drain_timeout_s
    loop = asyncio.get_running_loop()

    def signalled(number: signal.Signals) -> None:
        if asked.is_set() and number.name != "SIGHUP":
            log.warning("a second signal: everything is killed")
            for program in programs.all:
                program.signal(signal.SIGKILL)
        asked.set()

    if settings.log_settings is not None:
        pass_on_hangups([program for program in programs.all if program not in programs.brokers])
    for number in draining_signals():
        loop.add_signal_handler(number, signalled, number)
    running = [asyncio.create_task(program.run()) for program in programs.all]
    making = asyncio.ensure_future(programs.make_queues())
    try:
        if await _started(programs, making, folder, table, asked):
            on_ready()
            await _watch(table, asked, show, folder)
        log.info("draining")
    finally:
        # The gateway answers what is in flight, for which it needs the workers, and they the broker.
        await programs.gateway.stop(drain_s + END_S)
        await asyncio.gather(*(worker.stop(drain_s + END_S) for worker in programs.workers))
        await programs.config.stop(drain_s + END_S)
        await asyncio.gather(*(broker.stop(END_S) for broker in programs.brokers))
        for task in (*running, making):
            task.cancel()
        await asyncio.wait((*running, making))


async def _started(
    programs: Programs, making: asyncio.Future[None], folder: Path, table: Table, asked: asyncio.Event
) -> bool:
    """Wait until every worker takes work; False where a signal came first.

    Raises:
        PluginError: A program ended, the queues cannot be made, or it takes too long.
    """
    end = asyncio.get_running_loop().time() + START_S
    while not asked.is_set():
        if ended := next((program for program in programs.all if program.restarts > 0), None):
            told = "\n".join((folder / f"{ended.name}.log").read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise PluginError(f"{ended.name} ended at its start. The end of its log:\n{told}")
        if making.done() and (error := making.exception()) is not None:
            raise PluginError(f"The queues cannot be made: {error}")
        if await asyncio.to_thread(workers_up, table.url, table.token) >= len(programs.workers):
            return True
        if asyncio.get_running_loop().time() > end:
            lacks = "" if making.done() else " The broker has not made the queues; the lines above say why."
            raise PluginError(f"The cluster is not ready after {START_S:g} s; its logs are in {folder}.{lacks}")
        await within(asked.wait(), LOOK_S)
    return False


def workers_up(url: str, token: str | None = None) -> int:
    """Count the workers that take work, as the gateway tells; -1 where it does not, or has no configs yet."""
    if ask(f"{url}/readyz", timeout_s=2) is None:
        return -1
    workers = heard_workers(url, token, timeout_s=2)
    return -1 if workers is None else sum(workers.values())


async def _seen(look: Callable[[], Result]) -> Result | None:
    """Look on a thread; None where that fails for a reason that was not foreseen, for which no program is to end."""
    try:
        return await asyncio.to_thread(look)
    except Exception:
        log.exception("the cluster could not be looked at; it goes on")
        return None


async def _watch(table: Table, asked: asyncio.Event, show: Callable[[list[str]], None] | None, folder: Path) -> None:
    while not asked.is_set():
        if show is not None and (lines := await _seen(table.lines)) is not None:
            show(lines)
        await _seen(partial(rotate_logs, folder))
        await within(asked.wait(), SHOW_S)
