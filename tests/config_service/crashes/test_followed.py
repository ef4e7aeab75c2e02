"""A service killed between any two steps of a write while a follower is on it: afterwards both say the same."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import orjson
from sie_cluster.config_service.service import ConfigService
from sie_cluster.configs.answers import epoch_answer

from tests.cluster.configs.conftest import following, settings_of
from tests.cluster.configs.service import SmallService
from tests.config_service.conftest import Told
from tests.config_service.crashes.processes import STEPS, Nursery, call
from tests.config_service.crashes.test_killed_services import COUNTS, started, writes_of


class Front(SmallService):
    """What followers ask: the service; while there is none, nothing is told."""

    service: ConfigService | None = None

    def answer(self, path: str, token: str | None) -> tuple[int, bytes, dict[str, str]]:
        if self.service is None:
            return 503, b"{}", {}
        if path == "/v1/configs/export":
            return 200, self.service.export(), {}
        return 200, orjson.dumps(epoch_answer(self.service.registry)), {}


async def test_a_follower_comes_to_what_the_next_start_finds_and_a_repeated_key_changes_nothing_more(
    processes: Nursery, tmp_path: Path
) -> None:
    place, told, front = str(tmp_path / "store"), Told(), Front({})
    with front.serving() as url:
        async with following(settings_of(url, worker_config_poll_interval_ms=100)) as one:
            service = front.service = await asyncio.to_thread(started, place, told)
            await one.until(lambda: one.epoch == 0)
            for round_, step in enumerate(STEPS):
                before, front.service = service.registry.catalog.config_epoch, None
                await asyncio.to_thread(service.stop)
                write = writes_of(round_)["a new model"]
                pid, _ = processes.run(place, [write], step, signal.SIGKILL)
                assert await asyncio.to_thread(processes.wait, pid) == "killed"
                assert one.epoch == before
                service = front.service = await asyncio.to_thread(started, place, told)
                for epoch in (before + (step in COUNTS), before + 1):
                    await one.until(lambda epoch=epoch: one.epoch == epoch)
                    assert one.told[-1].config_hashes == service.registry.config_hashes
                    assert one.told[-1].catalog.configs.keys() == service.registry.catalog.configs.keys()
                    first = await asyncio.to_thread(call, service, write)
                    assert (first.status, first.body["epoch"]) == (201, before + 1)
            front.service = None
            await asyncio.to_thread(service.stop)
