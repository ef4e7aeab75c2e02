"""Large bodies go out as fast as their client takes them; small ones at once."""

import asyncio

import pytest

from sie_core.api import Gate
from sie_core.api.body import pieces
from sie_core.api.http import middleware
from sie_core.api.http.middleware import PIECE, Exchange
from sie_core.concurrency.pacing import BYTES_S, GIVES_WAY_S, PIECE_BYTES, Pacing
from tests.engine.virtual_time import VirtualTimeLoop


@pytest.mark.parametrize("size", [0, 5, PIECE, PIECE + 1, 3 * PIECE])
async def test_a_body_leaves_in_pieces_that_make_it_up(size):
    sent = []

    async def send(message):
        sent.append(message)

    body = bytes(range(251)) * (size // 251 + 1)
    exchange = Exchange({}, send, [(b"a", b"b")], Gate(1))
    await exchange.reply({"type": "http.response.start", "status": 200, "headers": []})
    await exchange.reply({"type": "http.response.body", "body": body[:size]})
    assert b"".join(message["body"] for message in sent[1:]) == body[:size]
    assert max(len(message["body"]) for message in sent[1:]) <= PIECE
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert (exchange.status, exchange.size) == (200, size)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("size", "paced"), [(PIECE, False), (PIECE + 1, True), (40 * PIECE, True)])
def test_beside_small_answers_a_large_body_leaves_in_small_pieces_at_a_bounded_rate(monkeypatch, size, paced, streamed):
    sent, body = [], bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def send(message):
        sent.append(message["body"])

    async def answers(pacing):
        while True:
            pacing.answered(1)
            await asyncio.sleep(GIVES_WAY_S / 2)

    async def reply(pacing):
        small, exchange = asyncio.create_task(answers(pacing)), Exchange({}, send, [], Gate(1))
        await asyncio.sleep(0)
        step = PIECE if streamed else size
        for start in range(0, size, step):
            await exchange.reply({"type": "http.response.body", "body": body[start : start + step], "more_body": True})
        small.cancel()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        pacing = Pacing(loop.time)
        monkeypatch.setattr(middleware, "PACING", pacing)
        runner.run(reply(pacing))
        seconds = loop.time()
    assert b"".join(sent) == body
    assert max(map(len, sent[1:]), default=0) <= PIECE_BYTES
    assert seconds == pytest.approx(paced * size / BYTES_S, abs=0.03)


def test_one_large_item_leaves_in_pieces_too_and_in_its_place():
    parts = [b"before", bytes(range(256)) * (20 << 10), b"between", b"y" * (2 * pieces.PIECE), b"after"]
    body = pieces.in_pieces(pieces.Pieces(iter(parts)), sum(map(len, parts)))
    assert isinstance(body, pieces.Pieces)
    sent = list(body.parts)
    assert b"".join(sent) == b"".join(parts)
    assert max(map(len, sent)) <= 3 * pieces.PIECE
