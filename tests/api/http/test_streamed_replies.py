"""Large replies are written while they are sent, and read as they would be if they were sent whole."""

import socket

import httpx
import numpy as np
import orjson
import pytest
from sie_sdk import wire

from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import PIECE, STREAMED, Pieces, in_pieces
from sie_core.api.http.offload import BodyThreads
from sie_core.api.inference.streamed import StreamedResponse
from tests.conftest import run_server

MULTI = "sie-fake/multi"
WORDS = " ".join(f"word{number}" for number in range(500))
ITEMS = [{"text": WORDS, "id": str(number)} for number in range(24)]
ASKED = {"items": ITEMS, "params": {"output_types": ["multivector"]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    (models / "multi.yaml").write_text(
        "sie_id: sie-fake/multi\npackage_backed: true\nmax_sequence_length: 512\n"
        "tasks: {encode: {multivector: {dim: 128}}}\n"
        "profiles: {default: {adapter_path: fake, max_batch_tokens: 4096}}\n"
    )
    env = {"SIE_MODELS_DIR": str(models), "SIE_MAX_REPLY_BYTES": str(40 * 2**20)}
    with run_server(tmp_path_factory.mktemp("streams"), env, args=["--preload", MULTI]) as running:
        yield running.url


def ask(url, accept="application/json", **body):
    return httpx.post(f"{url}/v1/encode/{MULTI}", json={**ASKED, **body}, headers={"Accept": accept}, timeout=60)


def exchange(url, head, body):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)
        received = b""
        while piece := connection.recv(2**20):
            received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    return head.decode().lower(), rest


def test_both_formats_say_the_same_and_are_framed_as_http_wants_it(server):
    plain, packed = ask(server), ask(server, "application/msgpack")
    assert "content-length" not in plain.headers
    assert plain.headers["transfer-encoding"] == "chunked"
    assert int(packed.headers["content-length"]) == len(packed.content) > STREAMED
    assert len(plain.content) > 2 * STREAMED
    read, other = plain.json(), wire.unpack(packed.content)
    assert (
        [item["id"] for item in read["items"]] == [item["id"] for item in other["items"]] == list(map(str, range(24)))
    )
    for mine, theirs in zip(read["items"], other["items"], strict=True):
        assert np.array_equal(np.float32(mine["multivector"]["values"]), theirs["multivector"]["values"])
    assert read["usage"] == other["usage"]


def test_a_client_of_http_1_0_gets_it_whole(server):
    body = orjson.dumps(ASKED)
    lines = f"POST /v1/encode/{MULTI} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head, received = exchange(server, lines, body)
    assert "transfer-encoding" not in head
    assert f"content-length: {len(received)}\r\n" in head + "\r\n"
    assert len(orjson.loads(received)["items"]) == len(ITEMS)


def test_a_connection_serves_on_after_a_reply_in_pieces(server):
    with httpx.Client(base_url=server, timeout=60) as client:
        for _ in range(2):
            assert len(client.post(f"/v1/encode/{MULTI}", json=ASKED).json()["items"]) == len(ITEMS)
            assert client.get("/livez").status_code == 200


def test_a_reply_beyond_the_limit_is_refused_with_what_helps(server):
    refusal = ask(server, items=ITEMS * 3)
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"]) == (413, "REPLY_TOO_LARGE")
    assert "SIE_MAX_REPLY_BYTES" in error["message"]
    assert len(wire.unpack(ask(server, "application/msgpack", items=ITEMS * 3).content)["items"]) == 3 * len(ITEMS)
    small = {"params": {"output_types": ["multivector"], "output_dtype": "int8"}}
    assert len(ask(server, items=ITEMS * 3, **small).json()["items"]) == 3 * len(ITEMS)


def test_a_client_that_leaves_ends_the_writing(server):
    for _ in range(3):
        with httpx.stream("POST", f"{server}/v1/encode/{MULTI}", json=ASKED, timeout=60) as reply:
            next(reply.iter_raw())
    assert ask(server).status_code == 200
    deadline_s = 60
    with httpx.Client(base_url=server, timeout=deadline_s) as client:
        for _ in range(deadline_s * 10):
            if client.get("/health").json()["requests_in_flight"] == 0:
                return
    pytest.fail("requests of clients that left are in flight still")


def test_one_piece_at_a_time_is_made():
    made = []

    def entries():
        for number in range(64):
            made.append(number)
            yield np.full(PIECE // 8, number, dtype=np.int32)

    body = write_json({"list": Entries(entries())}, STREAMED)
    assert isinstance(body, Pieces)
    assert len(made) < 8
    pieces = list(body.parts)
    assert max(map(len, pieces)) < 2 * PIECE
    assert len(orjson.loads(b"".join(pieces))["list"]) == 64


def test_what_cannot_be_written_is_told_before_anything_is_sent():
    with pytest.raises(orjson.JSONEncodeError):
        write_json(Entries([object()]), STREAMED)
    assert in_pieces(Pieces([b"a", b"b"], 2), 2) == b"ab"


async def test_nothing_is_written_for_a_client_that_is_gone():
    sent, made = [], []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    def parts():
        for _ in range(100):
            made.append(1)
            yield b"x" * PIECE

    reply = StreamedResponse(Pieces(parts()), {}, "application/json", BodyThreads())
    await reply({"type": "http", "http_version": "1.1"}, receive, send)
    assert len(made) < 5
