"""Large bodies go out as fast as their client takes them; small ones at once."""

import pytest

from sie_core.api import Gate
from sie_core.api.body import pieces
from sie_core.api.http.middleware import PIECE, Exchange


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


def test_one_large_item_leaves_in_pieces_too_and_in_its_place():
    parts = [b"before", bytes(range(256)) * (20 << 10), b"between", b"y" * (2 * pieces.PIECE), b"after"]
    body = pieces.in_pieces(pieces.Pieces(iter(parts)), sum(map(len, parts)))
    assert isinstance(body, pieces.Pieces)
    sent = list(body.parts)
    assert b"".join(sent) == b"".join(parts)
    assert max(map(len, sent)) <= 3 * pieces.PIECE
