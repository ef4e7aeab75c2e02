"""Blocks of large answers: used again once nobody has them, and given back in time."""

from __future__ import annotations

import threading

import numpy as np

from sie_core.concurrency.blocks import STEP, Blocks


def test_a_block_is_used_again_once_its_last_view_is_gone():
    blocks = Blocks()
    first = blocks.take(3 * STEP)
    address = first.ctypes.data
    view = first.data.toreadonly()[STEP : STEP + 5]
    del first
    assert blocks.take(3 * STEP).ctypes.data != address
    del view
    assert address in {blocks.take(3 * STEP).ctypes.data for _ in range(2)}


def test_a_slice_of_a_block_keeps_it_from_being_used_again():
    blocks = Blocks()
    part = blocks.take(2 * STEP)[7:9]
    part[:] = 1
    blocks.take(2 * STEP)[:] = 2
    assert part.tolist() == [1, 1]


def test_a_block_is_as_large_as_was_asked_for_and_its_memory_at_most_twice_that():
    blocks = Blocks()
    assert len(blocks.take(3 * STEP + 1)) == 3 * STEP + 1
    held = blocks.held_bytes
    assert len(blocks.take(4 * STEP)) == 4 * STEP
    assert blocks.held_bytes == held
    assert len(blocks.take(STEP)) == STEP
    assert blocks.held_bytes == held + STEP


def test_what_is_small_takes_no_block():
    blocks = Blocks()
    small = [blocks.take(1000) for _ in range(100)]
    assert {len(each) for each in small} == {1000}
    assert blocks.held_bytes == 0


def test_what_was_used_at_once_is_not_all_kept():
    blocks = Blocks(kept_bytes=8 * STEP)
    used = [blocks.take(4 * STEP) for _ in range(5)]
    blocks.release(60.0)
    assert blocks.held_bytes == 20 * STEP
    del used
    blocks.release(60.0)
    assert blocks.held_bytes == 8 * STEP


def test_no_more_is_kept_unused_than_may_be():
    blocks = Blocks(kept_bytes=8 * STEP)
    used = [blocks.take(4 * STEP) for _ in range(5)]
    assert blocks.held_bytes == 20 * STEP
    del used
    blocks.take(40 * STEP)
    assert blocks.held_bytes == 40 * STEP
    for size in range(1, 5):
        blocks.take(size * STEP)
    assert blocks.held_bytes <= 8 * STEP


def test_what_nobody_has_used_for_a_while_is_given_back():
    blocks = Blocks()
    used, _ = blocks.take(STEP), blocks.take(2 * STEP)
    del _
    blocks.release(60.0)
    assert blocks.held_bytes == 3 * STEP
    blocks.release(0.0)
    assert blocks.held_bytes == len(used)


def test_threads_never_share_a_block():
    blocks, wrong = Blocks(), []

    def work(number: int) -> None:
        for _ in range(200):
            block = blocks.take(STEP)
            block[:] = number
            if not np.array_equal(block, np.full(STEP, number, np.uint8)):
                wrong.append(number)
            del block

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert blocks.held_bytes <= 3 * STEP
