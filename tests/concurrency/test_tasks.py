"""Tasks that nobody awaits, and waits that end after a while."""

import asyncio
import gc

from sie_core.concurrency.tasks import Tasks, within


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


async def test_a_wait_ends_with_what_it_waits_for_or_when_its_time_is_over() -> None:
    happened = asyncio.Event()
    assert not await within(happened.wait(), 0)
    happened.set()
    assert await within(happened.wait(), 60)
    assert await within(happened.wait(), None)
