"""Many writers at two services: nothing is lost, and the result is that of the same writes one after another."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from sie_core.contracts import InferenceError
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Start, Told, post, profile

WRITERS = 200


def body(number: int) -> bytes:
    """One to three of six profiles of one of eight models; a profile has one of two contents."""
    chance = random.Random(number)
    names = chance.sample(["default", "a", "b", "c", "d", "e"], chance.randint(1, 3))
    profiles = {name: profile(max_batch_tokens=1 + (chance.random() < 0.2)) for name in names}
    return post(f"org/m{number % 8}", profiles)


def test_two_hundred_writers_of_overlapping_profiles_give_what_a_serial_replay_gives(
    start: Start, tmp_path: Path
) -> None:
    told = Told()
    service, second = start(publish=told), start(publish=told, name="two")
    begin = threading.Barrier(WRITERS)

    def write(number: int) -> tuple[int, int | None, object]:
        begin.wait(60)
        try:
            answer = (service, second)[number % 2].create(body(number), f"key {number}")
        except InferenceError as error:
            return number, None, error.details["conflicting_profiles"]
        return number, answer.body["epoch"] if answer.status == 201 else None, None

    with ThreadPoolExecutor(WRITERS) as threads:
        written = [each.result(120) for each in [threads.submit(write, number) for number in range(WRITERS)]]
    creating = {epoch: number for number, epoch, _ in written if epoch is not None}
    conflicting = sum(conflict is not None for _, _, conflict in written)
    assert (
        sorted(creating)
        == list(range(1, len(creating) + 1))
        == sorted(each.registry.catalog.config_epoch for each in told)
    )
    service.read_on()
    assert service.registry.catalog.config_epoch == len(creating)
    assert min(len(creating), conflicting, WRITERS - len(creating) - conflicting) > 5

    replay = start(FolderStore(tmp_path / "replay", durable=False))
    for epoch in sorted(creating):
        replay.create(body(creating[epoch]))
    one, other = (orjson.loads(each.export()) for each in (service, replay))
    assert one.pop("generated_at") != other.pop("generated_at")
    assert one == other
    service.stop()
    assert {**orjson.loads(start().export()), "generated_at": None} == {**one, "generated_at": None}
    assert Counter(len(each["model_config"]["profiles"]) > 1 for each in one["models"])[True] == 8
