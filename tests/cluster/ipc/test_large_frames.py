"""Large frames on a connection: they come whole, and small ones do not wait for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.ipc.parts import PART_BYTES, Whole, parts_of

BOUND_S = 30.0
LARGE = bytes(range(256)) * (64 << 10)
SIZES = range(1, 1 << 30)
Sent = tuple[Kind, int, Sequence[bytes]]
Came = tuple[Kind, int, bytes]


async def carry(frames: Sequence[Sent], *, close: bool) -> list[Came]:
    """What comes of frames that are sent within one turn of the event loop, before an end of the connection."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    came: list[Came] = []
    closed = asyncio.Event()

    def took(_: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        came.append((kind, number, bytes(payload)))
        if len(came) == len(frames) and not close:
            sender.abort()

    receiver = FrameStream(lambda _: None, took, lambda _: closed.set())
    sender = FrameStream(lambda _: None, lambda *_: None, lambda _: None)
    await loop.connect_accepted_socket(lambda: receiver, theirs)
    await loop.connect_accepted_socket(lambda: sender, ours)
    for kind, number, payload in frames:
        sender.send(kind, number, *payload)
    if close:
        sender.close()
    await asyncio.wait_for(closed.wait(), BOUND_S)
    return came


@pytest.mark.parametrize("close", [False, True])
async def test_a_small_frame_overtakes_large_ones_but_what_ends_something_does_not(close: bool) -> None:
    sent: list[Sent] = [
        (Kind.RESULT, 1, (LARGE[:7], LARGE[7:])),
        (Kind.RESULT, 2, (LARGE[:-3],)),
        (Kind.CANCEL, 1, ()),
        (Kind.DRAIN, 0, ()),
        (Kind.RESULT, 3, (b"small",)),
    ]
    first, *others = await carry(sent, close=close)
    assert first == (Kind.RESULT, 3, b"small")
    assert others == [(kind, number, b"".join(pieces)) for kind, number, pieces in sent[:4]]


@given(st.lists(st.binary(max_size=3 * PART_BYTES // 2), min_size=1, max_size=5), st.binary(min_size=1, max_size=9))
@settings(max_examples=30)
def test_parts_make_the_whole_again_however_it_was_in_pieces(pieces: list[bytes], last: bytes) -> None:
    whole, payload = Whole({2}, SIZES), (*pieces, last)
    *others, end = [whole.take(b"".join(part)) for part in parts_of(2, payload)]
    assert others == [None] * len(others)
    assert end == (2, b"".join(payload))


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"\x02\0\0\0\x05"],
        [b"\x03\0\0\0\x05abcde"],
        [b"\x02\0\0\0\0a"],
        [b"\x02\x7f\xff\xff\xffa"],
        [b"\x02\0\0\0\x05abcdef"],
        [b"\x02\0\0\0\x05abc", b"\x02\0\0\0\x05def"],
        [b"\x02\0\0\0\x05abc", b"\x02\0\0\0\x06d"],
        [b"\x02\0\0\0\x05abc", b"\x04\0\0\0\x05d"],
    ],
)  # fmt: skip
def test_what_is_no_part_is_refused(parts: list[bytes]) -> None:
    whole = Whole({2, 4}, SIZES)
    for part in parts[:-1]:
        assert whole.take(part) is None
    with pytest.raises(ValueError, match="part"):
        whole.take(parts[-1])
