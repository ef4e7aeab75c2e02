"""Services on one journal of a real broker: nothing of many writers is lost, nor of a broker that answers nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from sie_cluster.config_service import service as service_module
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ANSWER_S, ConfigLog, JournalLog
from sie_cluster.config_service.store.records import Backup, Entry, StoreDamaged, StoredModel, Write
from sie_cluster.config_service.store.restoring import restore

from sie_core.contracts import InferenceError, QueueError, Reading
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Told, post, profile, refused, service_on
from tests.config_service.crashes.processes import until
from tests.config_service.test_many_writers import WRITERS, body
from tests.nats.conftest import Broker, transport


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that keeps nothing when it ends."""
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@contextmanager
def journal(broker: Broker) -> Iterator[JournalLog]:
    """The journal of a broker, by a connection of its own."""
    with start_blocking_portal() as portal:
        connection = transport(broker.url, storage="memory")
        portal.call(connection.open)
        try:
            yield JournalLog(lambda: connection, portal.call(_loop))
        finally:
            portal.call(connection.close)


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def started(log: ConfigLog, **options: object) -> ConfigService:
    service = service_on(log, **options)
    service.read_on()
    return service


def test_two_hundred_writers_at_two_services_lose_nothing(broker: Broker) -> None:
    told = Told()
    with journal(broker) as one, journal(broker) as other:
        services = [started(one, publish=told), started(other, publish=told, name="two")]

        def write(number: int) -> int | None:
            try:
                answer = services[number % 2].create(body(number), f"key {number}")
            except InferenceError as error:
                return None if error.code == "CONTENT_CONFLICT" else -1
            return answer.body["epoch"] if answer.status == 201 else None

        with ThreadPoolExecutor(WRITERS) as threads:
            epochs = [each for each in threads.map(write, range(WRITERS)) if each is not None]
        assert (
            sorted(epochs)
            == list(range(1, len(epochs) + 1))
            == sorted(each.registry.catalog.config_epoch for each in told)
        )
        for each in services:
            each.read_on()
        first, second = (each.registry for each in services)
        assert first.config_hashes == second.config_hashes
        assert first.epochs == second.epochs
        assert max(first.epochs.values()) == len(epochs)


@dataclass
class Deaf:
    """A log whose next answers are lost: after the record is stored, or before."""

    log: ConfigLog
    lose: list[bool] = field(default_factory=list)

    def open(self, first: int | None) -> None:
        self.log.open(first)

    def read(self, after: int = 0) -> Reading:
        return self.log.read(after)

    def append(self, key: str, payload: bytes, *, after: int) -> int:
        if not self.lose:
            return self.log.append(key, payload, after=after)
        if self.lose.pop(0):
            self.log.append(key, payload, after=after)
        raise QueueError("UNAVAILABLE", "The answer was lost.")


@pytest.mark.parametrize("lose", [[True], [False], [False, False, True]])
def test_a_write_whose_answer_is_lost_counts_once(broker: Broker, lose: list[bool]) -> None:
    told = Told()
    with journal(broker) as log:
        service = started(Deaf(log, list(lose)), publish=told)
        answer = service.create(post("org/a"), "key")
        assert (answer.status, answer.body["epoch"]) == (201, 1)
        assert service.create(post("org/a"), "key") == answer
        assert [each.registry.catalog.config_epoch for each in told] == [1]


def test_a_write_that_is_never_answered_is_refused_as_open(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "WRITE_S", 0.2)
    with journal(broker) as log:
        deaf = Deaf(log, [False] * 1000)
        service = started(deaf)
        assert refused(lambda: service.create(post("org/a"), "key")).code == "CONFIG_STORE_UNAVAILABLE"
        deaf.lose.clear()
        assert service.create(post("org/a"), "key").body["epoch"] == 1


def test_a_record_of_a_later_release_stops_writes_and_reads_until_it_is_replaced(broker: Broker) -> None:
    with journal(broker) as log:
        service = started(log)
        service.create(post("org/a"))
        backup = service.state.backup()
        log.append("later", b"no record", after=1)
        error = refused(lambda: service.create(post("org/b")))
        assert (error.code, "later release" in str(error)) == ("CONFIG_STORE_UNAVAILABLE", True)
        assert "later" in str(service.problem)
        assert refused(service.export).code == "CONFIG_STORE_UNAVAILABLE"
        restore(log, backup, replace=True)
        service.read_on()
        assert service.create(post("org/b")).status == 201
        assert started(log).registry.config_hashes == service.registry.config_hashes


def test_a_config_that_fits_into_no_message_is_refused_for_good(broker: Broker) -> None:
    with journal(broker) as log:
        service = started(log)
        text = base64.b64encode(random.Random(1).randbytes(700_000)).decode()
        large = post("org/large", {"default": profile(adapter_options={"runtime": {"text": text}})})
        error = refused(lambda: service.create(large))
        assert (error.code, error.spec.retryable) == ("PAYLOAD_TOO_LARGE", False)
        options = {"runtime": {f"option{number}": "x" * 500 for number in range(1500)}}
        service.create(post("org/long", {"default": profile(adapter_options=options)}))
        assert started(log).registry.epochs == {"org/long": 1}
        # A backup of a service without a broker may hold one.
        text += base64.b64encode(random.Random(2).randbytes(700_000)).decode()
        written = Write(id="1", model_id="org/large", model=StoredModel(text=text, content={"sie_id": "org/large"}))
        backup = Backup(epoch=1, entries=[Entry(epoch=1, write=written)])
        assert list(restore(log, backup).models) == ["org/long"]


@contextmanager
def lost(broker: Broker) -> Iterator[JournalLog]:
    """The journal of a broker that has lost all that it held."""
    broker.kill()
    broker.start()
    with journal(broker) as log:
        yield log


class Cut(Deaf):
    """Ends a restore in its middle."""

    def append(self, key: str, payload: bytes, *, after: int) -> int:
        if after == 9:
            raise QueueError("DENIED", "The service ends here.")
        return super().append(key, payload, after=after)


def filled(broker: Broker, folder: Path) -> BackupStore:
    """A backup of four models, a removed one, and the key of its removal."""
    backups = BackupStore(FolderStore(folder, durable=False))
    with journal(broker) as log:
        service = started(log)
        for number in range(5):
            service.create(post(f"org/m{number}"))
        service.delete("org/m0", "removed")
        backups.write(service.state.backup())
    return backups


def test_a_restore_that_was_cut_is_gone_on_with(broker: Broker, tmp_path: Path) -> None:
    backups = filled(broker, tmp_path)
    with lost(broker) as log:
        cut = service_on(Cut(log), backups=backups)
        with pytest.raises(QueueError):
            cut.read_on()
        assert not cut.ready
        beside = service_on(log)  # without the backup
        beside.read_on()
        assert "sie config restore" in str(beside.problem)
        assert refused(lambda: beside.create(post("org/m1"))).code == "CONFIG_STORE_UNAVAILABLE"
        again = started(log, backups=backups)
        assert again.ready
        assert sorted(again.state.models) == ["org/m1", "org/m2", "org/m3", "org/m4"]
        assert again.state.epoch == 13  # above the backup's 6: a mark, five writes, a mark
        beside.read_on()
        assert (beside.ready, beside.registry.config_hashes) == (True, again.registry.config_hashes)
        assert again.create(post("org/m0")).body["epoch"] == 14
        assert again.delete("org/m0", "removed").body["epoch"] == 6  # the first answer
        assert "org/m0" in again.state.models


def test_a_restore_that_was_cut_and_is_not_wanted_ends_as_it_is(broker: Broker, tmp_path: Path) -> None:
    backups = filled(broker, tmp_path)
    with lost(broker) as log:
        with pytest.raises(QueueError):
            service_on(Cut(log), backups=backups).read_on()
        service = started(log, backups=backups, restore=False)
        assert (service.ready, list(service.state.models)) == (True, ["org/m0", "org/m1"][1:])


def test_a_service_that_holds_more_than_the_backup_restores_what_it_holds(broker: Broker, tmp_path: Path) -> None:
    backups = filled(broker, tmp_path)
    with journal(broker) as log:
        service = started(log, backups=backups)
        service.create(post("org/unsaved"))
        broker.kill()
        broker.start()
        until(lambda: reads(service), "it does not come back")
        assert "org/unsaved" in service.state.models
        assert min(service.state.epochs.values()) > 7
        assert service.create(post("org/more")).status == 201


def reads(service: ConfigService) -> bool:
    """Whether a service can read what others wrote."""
    with contextlib.suppress(QueueError):
        service.read_on()
        return True
    return False


def test_a_log_that_holds_something_needs_no_backup_and_an_empty_one_waits_for_it(
    broker: Broker, tmp_path: Path
) -> None:
    backups = filled(broker, tmp_path)
    good = (tmp_path / "configs.json").read_bytes()
    (tmp_path / "configs.json").write_text("nothing")
    with journal(broker) as log:
        assert started(log, backups=backups).ready
    with lost(broker) as log:
        log.open(first=1)
        service = service_on(log, backups=backups)
        with pytest.raises(StoreDamaged):
            service.read_on()
        assert refused(lambda: service.create(post("org/new"))).code == "CONFIG_STORE_UNAVAILABLE"
        (tmp_path / "configs.json").write_bytes(good)
        service.read_on()
        assert len(service.state.models) == 4


def test_a_journal_that_was_made_anew_up_to_the_same_number_is_noticed(broker: Broker) -> None:
    with journal(broker) as log, journal(broker) as other:
        one, two = started(log), started(other)
        one.create(post("org/a"))
        two.read_on()
        portal_ask(broker, "STREAM.DELETE.sie-config")
        fresh = started(journal_again := other)
        assert journal_again is other
        while fresh.state.epoch < one.state.epoch:
            fresh.create(post(f"org/fresh{fresh.state.epoch}"))
        one.read_on()
        assert one.registry.config_hashes == fresh.registry.config_hashes


def portal_ask(broker: Broker, subject: str) -> None:
    """Ask JetStream's API as its operator."""
    with start_blocking_portal() as portal:
        connection = transport(broker.url)
        portal.call(connection.open)
        portal.call(connection._connection.ask, subject)  # type: ignore[attr-defined]
        portal.call(connection.close)


def test_writers_behind_a_broker_that_stands_still_are_refused_within_a_bound(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "WRITE_S", 0.5)
    with journal(broker) as log:
        service = started(log)
        broker.signal(signal.SIGSTOP)
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            calls = [threads.submit(refused, partial(service.create, post(f"org/m{n}"))) for n in range(8)]
            assert {each.result().code for each in calls} == {"CONFIG_STORE_UNAVAILABLE"}
        took_s = time.monotonic() - began
        broker.signal(signal.SIGCONT)
        assert took_s < 2 * ANSWER_S
        assert service.stale is None
