"""Services on one journal of a real broker: nothing of many writers is lost, nor of a broker that answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from sie_cluster.config_service import service as service_module
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ConfigLog, JournalLog

from sie_core.contracts import InferenceError, QueueError, Reading
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Told, post, profile, refused, service_on
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
        assert sorted(epochs) == list(range(1, len(epochs) + 1)) == sorted(each.epoch for each in told)
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
        assert [each.epoch for each in told] == [1]


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
        log.append("later", b"no record", after=1)
        error = refused(lambda: service.create(post("org/b")))
        assert (error.code, "later release" in str(error)) == ("CONFIG_STORE_UNAVAILABLE", True)
        assert "later" in str(service.problem)
        assert refused(service.export).code == "CONFIG_STORE_UNAVAILABLE"


def test_a_large_config_is_one_message(broker: Broker) -> None:
    options = {"runtime": {f"option{number}": "x" * 500 for number in range(1500)}}
    with journal(broker) as log:
        started(log).create(post("org/large", {"default": profile(adapter_options=options)}))
        assert started(log).registry.epochs == {"org/large": 1}


def test_a_restore_that_was_cut_is_gone_on_with(broker: Broker, tmp_path: Path) -> None:
    backups = BackupStore(FolderStore(tmp_path, durable=False))
    with journal(broker) as log:
        service = started(log)
        for number in range(5):
            service.create(post(f"org/m{number}"))
        service.delete("org/m0")
        backups.write(service.state.backup())
    broker.kill()
    broker.start()  # it kept nothing

    class Ends(Deaf):
        def append(self, key: str, payload: bytes, *, after: int) -> int:
            if after == 9:
                raise QueueError("UNAVAILABLE", "The service ends here.")
            return super().append(key, payload, after=after)

    with journal(broker) as log:
        cut = service_on(Ends(log), backups=backups)
        with pytest.raises(QueueError):
            cut.read_on()
        assert not cut.ready
        beside = service_on(log)  # without the backup
        beside.read_on()
        assert "restore" in str(beside.problem)
        again = started(log, backups=backups)
        assert again.ready
        assert sorted(again.state.models) == ["org/m1", "org/m2", "org/m3", "org/m4"]
        assert again.state.epoch == 12  # above the backup's 6: a mark, four models, a mark
        beside.read_on()
        assert (beside.ready, beside.registry.config_hashes) == (True, again.registry.config_hashes)
        assert again.create(post("org/new")).body["epoch"] == 13
