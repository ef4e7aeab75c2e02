"""Every slice has an answer, whatever its backend makes of it: who waits for one is never left to a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgpack import packb, unpackb
from sie_cluster.messages.requests import pack_item, pack_shared
from sie_cluster.messages.work import WorkHead, decode_result, encode_work
from sie_cluster.worker import answering
from sie_cluster.worker.answering import WorkerBackend, answer

from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, Item, Timing, Usage

HEAD = WorkHead("r", 0, 1, 1, "encode", "m", b"k" * 16, 0, 1, 1, "_INBOX.gateway.1")


async def answered(infer: Callable[[InferenceRequest], InferenceReply]) -> Mapping[str, Any]:
    """The error of the result of a slice."""

    class Backend:
        async def infer(self, request: InferenceRequest) -> InferenceReply:
            return infer(request)

    item = Item(text="a text")
    frame = encode_work(HEAD, pack_shared(InferenceRequest("m", "encode", [item], request_id="r")), [pack_item(item)])
    result, items = decode_result(b"".join(await answer(cast("WorkerBackend", Backend()), frame)))
    assert result.error is not None
    assert not items
    return result.error


def reply(*items: bytes, lora: str | None = None) -> InferenceReply:
    return InferenceReply(list(items), Timing(), Usage(), truncated=0, lora=lora)


def refuses(message: str, **details: Any) -> Callable[[InferenceRequest], InferenceReply]:
    def infer(request: InferenceRequest) -> InferenceReply:
        raise InferenceError("INVALID_INPUT", message, details=details)

    return infer


async def test_an_error_too_large_for_a_head_is_told_cut() -> None:
    error = await answered(refuses("this text is bad: " + "x" * 100_000))
    assert error["code"] == "INVALID_INPUT"
    assert error["message"].startswith("this text is bad: xxx")
    assert (await answered(refuses("bad", texts=["x"] * 50_000))) == {"code": "INVALID_INPUT", "message": "bad"}


async def test_a_request_of_a_newer_release_may_come_again() -> None:
    shared = packb(unpackb(pack_shared(InferenceRequest("m", "encode", [], request_id="r"))) | {"of_tomorrow": 1})
    frame = encode_work(HEAD, shared, [pack_item(Item(text="a text"))])
    result, _ = decode_result(b"".join(await answer(cast("WorkerBackend", SimpleNamespace(infer=None)), frame)))
    assert result.error is not None
    assert result.error["code"] == "QUEUE_UNAVAILABLE"
    assert "older release" in result.error["message"]


async def test_a_reply_that_cannot_be_written_is_an_error_of_the_server() -> None:
    assert (await answered(lambda _: reply(b"\x01", lora="x" * 100_000)))["code"] == "INTERNAL_ERROR"
    assert (await answered(lambda _: cast("InferenceReply", None)))["code"] == "INTERNAL_ERROR"


async def test_a_result_beyond_what_the_queue_takes_is_refused_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the connection to the sidecar, and with it whatever else is at work."""
    monkeypatch.setattr(answering, "MOST_RESULT_BYTES", 1000)
    error = await answered(lambda _: reply(bytes(1000)))
    assert error["code"] == "REPLY_TOO_LARGE"
    assert "ask for fewer items" in error["message"]


async def test_slices_of_one_request_are_of_one_client() -> None:
    asked: list[InferenceRequest] = []

    class Backend:
        async def infer(self, request: InferenceRequest) -> InferenceReply:
            asked.append(request)
            return reply(b"")

    item = Item(text="a text")
    shared, items = pack_shared(InferenceRequest("m", "encode", [item], request_id="r")), [pack_item(item)]
    heads = [HEAD, *(HEAD._replace(slice=number, slices=2) for number in range(2)), HEAD._replace(slices=2, client="c")]
    for head in heads:
        await answer(cast("WorkerBackend", Backend()), encode_work(head, shared, items))
    told = [request.client for request in asked]
    assert told == [None, "_INBOX.gateway.1", "_INBOX.gateway.1", "c"]
