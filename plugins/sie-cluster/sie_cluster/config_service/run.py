"""The config service as a program: puts its parts together, follows other services, drains at a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from functools import partial

from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import read_bundles, shipped_bundles
from sie_bundle.bundles.watching import BundlesWatch, stamp_of

from sie_cluster.config_service.api.app import PREFIX, create_app
from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.config_service.api.tokens import Tokens
from sie_cluster.config_service.metrics import ConfigMetrics
from sie_cluster.config_service.publisher import Publisher
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupKeeper, BackupStore
from sie_cluster.config_service.store.logs import JournalLog, ObjectLog
from sie_cluster.config_service.store.records import StoreDamaged
from sie_cluster.programs.probes import tell_of_process
from sie_cluster.queue.broker import Make, transport_maker
from sie_cluster.settings import ClusterSettings
from sie_core.api import Browsers, Gate, allowed_hosts, error_response
from sie_core.callers import Callers
from sie_core.catalog import Catalog, build_base, open_folder
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.concurrency.tasks import within
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import ObjectStoreError, QueueError
from sie_core.plugins import PluginSet
from sie_core.plugins.object_stores import open_store_or_folder
from sie_core.serving.announcement import Announcement
from sie_core.serving.draining import Drain, end_process
from sie_core.serving.garbage import collect_seldom
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.serving.listening import address_of, listen, url_of

log = logging.getLogger("sie_cluster.config_service")

OnReady = Callable[[Announcement], None]

PRODUCER = "sie-config"
"""What the names of config services begin with: followers believe it unless their settings say otherwise."""
MOST_BODIES = 64
"""How many of the largest bodies the requests in flight may hold together."""
STOP_S = 3.0
"""How long the end waits for the store, after requests in flight had their time."""
READ_S, ALONE_S = 5.0, 30.0
"""Between two looks for what other services wrote, where nothing is heard of it; and without a broker."""
AGAIN_S = 1.0
"""Between two attempts to read the log, before the first that succeeds."""


class ServiceEnded(Exception):
    """The service cannot begin; the message says why, and how to repair it."""


class _Base:
    """The configs and bundles that the service starts from, and follows in `SIE_MODELS_DIR` and `SIE_BUNDLES_DIR`.

    Raises:
        SettingsError: They cannot be read.
    """

    def __init__(self, settings: ClusterSettings, plugins: PluginSet) -> None:
        self.settings, self.plugins = settings, plugins
        self._folder = open_folder(settings, plugins)
        self.catalog = build_base(settings, plugins, folder=self._folder)
        self._bundles = settings.bundles_dir or shipped_bundles()
        self._bundles_stamp = stamp_of(self._bundles)  # before they are read
        self.placement = Placement(read_bundles(self._bundles), plugins)

    def watch_bundles(self, service: ConfigService, metrics: ConfigMetrics) -> BundlesWatch:
        """Have changed bundles put in force."""
        return BundlesWatch(
            self._bundles,
            self._bundles_stamp,
            lambda bundles: service.rebase(placement=Placement(bundles, self.plugins)),
            lambda result: metrics.bundle_changes.labels(result).inc(),
        )

    def watch_models(self, service: ConfigService) -> CatalogWatch:
        """Have a changed folder put in force."""

        def rebuild(before: Catalog) -> Catalog:
            catalog = build_base(self.settings, self.plugins, folder=self._folder, before=before)
            service.rebase(catalog)
            return catalog

        def replaced(catalog: Catalog) -> None:
            self.catalog = catalog

        return CatalogWatch(self._folder, rebuild, lambda: self.catalog, replaced, lambda problem: None)


def run_config_service(settings: ClusterSettings, plugins: PluginSet, on_ready: OnReady = lambda told: None) -> None:
    """Serve until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        on_ready: Called with what to tell once everything that was written is read.

    Raises:
        ListenError: The address cannot be listened on.
        PluginError: No plugin serves the URL of the store or of the broker.
        SettingsError: Bundles or the models folder cannot be read.
        QueueError: The broker refuses this user.
        ServiceEnded: The store refuses this service, is not there, or cannot be read at the start.
    """
    collect_seldom()
    base = _Base(settings, plugins)
    make = None if settings.nats_url is None else transport_maker(settings, plugins)
    with contextlib.closing(listen(settings.http_host, settings.http_port)) as listener:
        run_loop(_serve(base, make, listener, on_ready))


def service_name() -> str:
    """Name this service."""
    return f"{PRODUCER}-{socket.gethostname().partition('.')[0]}-{os.getpid()}"


async def _serve(base: _Base, make: Make | None, listener: socket.socket, on_ready: OnReady) -> None:
    settings, metrics = base.settings, ConfigMetrics()
    tell_of_process(metrics.registry)
    publisher = None
    if make is not None:
        publisher = Publisher(make, service_name(), settings.pool, metrics.publish_failures.inc)
    service, keeper = _service(base, publisher)
    gate = Gate(settings.max_concurrent_requests, MOST_BODIES * LARGEST_CONFIG)
    browsers = Browsers(settings.cors_origins, allowed_hosts(settings, listener.getsockname()[0]))
    api = ConfigApi(
        service, Tokens.of(settings), gate, metrics, publisher, browsers, callers=Callers(settings.trusted_proxies)
    )
    metrics.watch(
        lambda: service.registry.catalog.config_epoch or 0,
        lambda source: sum(each == source for each in service.sources.values()),
        lambda: service.state.epoch if keeper is None else keeper.epoch,
        lambda: publisher is not None and publisher.connected,
    )
    refusal = partial(error_response, scope={"path": PREFIX})
    server = HttpServer(create_app(api), refusal, keep_alive_s=settings.http_keep_alive_s)
    Drain(gate, settings.drain_timeout_s, server.stop).install()
    if api.tokens.open:
        log.warning(
            "SIE_ADMIN_TOKEN is not set, nor a token that reads: whoever reaches this service may write configs"
        )
    log.info("%s, listening on %s", service_name(), address_of(listener))
    try:
        await server.serve_on(
            listener, partial(_run, api, base, keeper, partial(on_ready, Announcement(url_of(listener))))
        )
    finally:
        await _stop(service, keeper)
        log.info("stopped")


def _service(base: _Base, publisher: Publisher | None) -> tuple[ConfigService, BackupKeeper | None]:
    """Make the service: on the broker's journal with a backup, or without a broker on the backup alone."""
    settings = base.settings
    store = open_store_or_folder("SIE_CONFIG_STORE_DIR", str(settings.config_store_dir), base.plugins.object_stores)
    if publisher is None:
        own = ObjectLog(BackupStore(store), restore=settings.config_restore)
        return ConfigService(base.catalog, base.placement, own, name=service_name()), None

    keeper = BackupKeeper(BackupStore(store), lambda: service.state)
    service = ConfigService(
        base.catalog,
        base.placement,
        JournalLog(lambda: publisher.transport, asyncio.get_running_loop()),
        name=service_name(),
        backups=BackupStore(store),
        restore=settings.config_restore,
        publish=publisher.publish,
        changed=keeper.changed,
    )
    return service, keeper


async def _stop(service: ConfigService, keeper: BackupKeeper | None) -> None:
    """End the service; where its store does not answer, the process ends with what hangs."""

    def stop() -> None:
        service.stop()
        if keeper is not None:
            keeper.stop()

    if not await within(on_thread("sie-config-stop", stop), STOP_S):
        log.error("the config store has not answered for %g s: what was being written is left, whole or not", STOP_S)
        end_process()


async def _run(api: ConfigApi, base: _Base, keeper: BackupKeeper | None, on_ready: Callable[[], None]) -> None:
    """Run what goes on beside the routes, until one of it fails or all is cancelled."""
    service, publisher = api.service, api.publisher
    heard = asyncio.Event() if publisher is None else publisher.heard
    work = [base.watch_models(service).run(), base.watch_bundles(service, api.metrics).run()]
    work.append(_read(service, heard, ALONE_S if publisher is None else READ_S, on_ready))
    if publisher is not None:
        work.append(publisher.run(service))
    if keeper is not None:
        keeper.start()
    tasks = list(map(asyncio.ensure_future, work))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(service: ConfigService, heard: asyncio.Event, every_s: float, on_ready: Callable[[], None]) -> None:
    """Read what others write, when something is heard of it and every so often.

    Raises:
        ServiceEnded: The store cannot be read, before it was once.
    """
    began, told = False, ""
    while True:
        heard.clear()
        try:
            await on_thread("sie-config-read", service.read_on)
        except (QueueError, ObjectStoreError, StoreDamaged) as error:
            if not began and (isinstance(error, StoreDamaged) or error.failure not in ("UNAVAILABLE", "CONFLICT")):
                where = "the broker" if isinstance(error, QueueError) else "SIE_CONFIG_STORE_DIR"
                raise ServiceEnded(f"{where}: {error}") from error
            if str(error) != told:
                log.warning("what others wrote cannot be read: %s", error)
            told = str(error)
        else:
            told = ""
            if service.ready and not began:
                began = True
                on_ready()
        await within(heard.wait(), every_s if began else AGAIN_S)
