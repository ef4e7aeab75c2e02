"""Tasks that nobody awaits, and waits that end after a while."""

import asyncio
import gc

import pytest

from sie_core.concurrency.tasks import Tasks, supervised, within


async def test_a_task_that_nobody_holds_lives_until_it_ends() -> None:
    tasks, ended = Tasks(), []

    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    async def wait() -> None:
        try:
            await work()  # only the task itself knows what it waits for
        finally:
            ended.append(True)

    tasks.start(wait())
    await asyncio.sleep(0)
    gc.collect()
    assert not ended
    tasks.cancel()
    await asyncio.sleep(0)
    assert ended


async def test_work_that_fails_or_ends_begins_again_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    begun, goes_on = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise RuntimeError("can't start new thread")
        if begun == 3:
            raise asyncio.CancelledError  # of a future of a library whose connection ended
        if begun == 4:
            goes_on.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(supervised("counting queues", work, 0))
    async with asyncio.timeout(60):
        await goes_on.wait()
    assert "counting queues: this has failed" in caplog.text
    assert "can't start new thread" in caplog.text
    assert "counting queues: this has ended" in caplog.text
    assert "counting queues: this was cancelled from within" in caplog.text
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert begun == 4


async def test_a_wait_ends_with_what_it_waits_for_or_when_its_time_is_over() -> None:
    happened = asyncio.Event()
    assert not await within(happened.wait(), 0)
    happened.set()
    assert await within(happened.wait(), 60)
    assert await within(happened.wait(), None)
