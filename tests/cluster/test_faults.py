"""What is lost on the way is sent again, what nobody waits for does not run, and what is foreign is refused."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx
import pytest
from sie_cluster.gateway.flights import dispatcher, telling
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.ipc.listening import listen_on
from sie_cluster.messages.requests import pack_item, pack_shared
from sie_cluster.messages.work import WorkHead, encode_work
from sie_cluster.queue.dead_letters import DeadLetter, read_dead
from sie_cluster.queue.subjects import cancel_subject, needed_subject, work_subject
from sie_fake.broker.queue import InProcessTransport

from sie_core.contracts import InferenceRequest, Item, Message, Work
from sie_core.serving.listening import ListenError
from tests.cluster.in_process import Cluster, running

QUEUE = "sie-work-_default"
MODEL = "test/held"
PATH = f"/v1/encode/{MODEL}"


@dataclass
class Held:
    """A cluster with a model whose runs wait while `hold` exists; `journal` tells what ran."""

    cluster: Cluster
    hold: Path
    journal: Path

    def ask(self, *texts: str, **headers: str) -> asyncio.Task[httpx.Response]:
        body = {"items": [{"text": text} for text in texts]}
        return asyncio.create_task(self.cluster.client.post(PATH, json=body, headers={"Prefer": "wait=30", **headers}))

    async def until_at_work(self, slices: int = 1) -> None:
        await self.cluster.until(lambda: self.cluster.intake.in_flight == slices)

    def end_adapter(self) -> None:
        """End the connections, as the end of the adapter process does; it can be connected to again at once."""
        for stream in list(self.cluster.intake._streams):
            stream.abort()

    def ran(self) -> set[str]:
        if not self.journal.exists():
            return set()
        events = map(json.loads, self.journal.read_text().splitlines())
        return {text for event in events if event["kind"] == "run" for text in event["texts"]}


@dataclass
class Other:
    """One more sidecar of the adapter process, as far as the frames on its connection go."""

    stream: FrameStream
    came: asyncio.Queue[tuple[Kind, int, bytes]]

    @classmethod
    async def connect(cls, held: Held) -> Other:
        came: asyncio.Queue[tuple[Kind, int, bytes]] = asyncio.Queue()

        def stream() -> FrameStream:
            return FrameStream(lambda _: None, lambda _, *frame: came.put_nowait(frame), lambda _: None)

        path = held.hold.parent / "ipc"
        _, connected = await asyncio.get_running_loop().create_unix_connection(stream, str(path))
        return cls(connected, came)

    async def next(self, kind: Kind) -> tuple[int, bytes]:
        async with asyncio.timeout(30):
            while (frame := await self.came.get())[0] is not kind:
                pass
        return frame[1], frame[2]


async def dead_letter(cluster: Cluster) -> DeadLetter:
    """The slice that was refused, as an operator reads it, again and again until it is removed."""
    assert cluster.metric("sie_gateway_dead_letters_total") == 1
    shown: list[DeadLetter] = []
    for remove in (False, True, True):
        await read_dead(cluster.transport, "_default", 10, shown.append, remove=remove)
    first, again = shown
    assert first == again
    return first


def one_text(text: str) -> bytes:
    """A slice of one text."""
    request = InferenceRequest(MODEL, "encode", [Item(text=text)], request_id="r")
    head = WorkHead("r", 0, 1, 1, "encode", MODEL, b"k" * 16, 0, 1, 1, "_INBOX.gateway.1")
    return encode_work(head, pack_shared(request), [pack_item(item) for item in request.items])


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    hold, journal, configs = tmp_path / "hold", tmp_path / "journal", tmp_path / "configs"
    configs.mkdir()
    (configs / "held.yaml").write_text(
        f"sie_id: {MODEL}\npackage_backed: true\ntasks: {{encode: {{dense: {{dim: 8}}}}}}\nprofiles:\n  default:\n"
        "    adapter_path: fake\n    max_batch_tokens: 8\n"
        f"    adapter_options: {{loadtime: {{run_hold: {hold}, journal: {journal}}}}}\n"
    )
    async with running(tmp_path, models_dir=configs, preload_models=(MODEL,)) as cluster:
        hold.touch()
        yield Held(cluster, hold, journal)
        hold.unlink(missing_ok=True)


async def test_a_client_that_leaves_has_its_work_called_off(held: Held) -> None:
    asked = held.ask("wanted first", *(f"never wanted {place}" for place in range(100)))
    await held.until_at_work(4)
    asked.cancel()
    cluster = held.cluster
    await cluster.until(lambda: cluster.sidecar.in_flight == 0 and cluster.intake.in_flight == 0)
    held.hold.unlink()
    assert (await held.ask("wanted")).status_code == 200
    assert await cluster.transport.backlog(QUEUE) == {}
    assert "wanted" in held.ran()
    assert not [text for text in held.ran() if text.endswith(" 99")]


@pytest.mark.parametrize("sidecars_are_late", [False, True])
async def test_what_ends_while_the_broker_is_away_is_cancelled_once_it_is_back(
    held: Held, monkeypatch: pytest.MonkeyPatch, sidecars_are_late: bool
) -> None:
    """Also at sidecars that are connected again later than the gateway."""
    monkeypatch.setattr(dispatcher, "SIDECARS_S", 0.2)
    first = held.ask("first")
    await held.until_at_work()
    left = [held.ask(f"never wanted {number}") for number in range(32)]
    cluster = held.cluster
    await cluster.until(lambda: cluster.sidecar.in_flight == 33)
    transport = cast("InProcessTransport", cluster.dispatcher.transport)
    transport._state = "reconnecting"
    for each in left:
        each.cancel()
    await cluster.until(lambda: len(cluster.dispatcher._flights) == 1)
    hears = next(each for each in transport._broker.subscriptions if each.subject == cancel_subject("_default"))
    if sidecars_are_late:
        transport._broker.subscriptions.remove(hears)
        asyncio.get_running_loop().call_later(0.1, transport._broker.subscriptions.append, hears)
    transport._state = "connected"
    cluster.dispatcher._changed("connected")
    await cluster.until(lambda: cluster.sidecar.in_flight == 1)
    held.hold.unlink()
    assert (await first).status_code == 200
    assert held.ran() == {"first"}
    assert await cluster.transport.backlog(QUEUE) == {}


async def test_of_what_ends_while_the_broker_is_away_a_bounded_number_is_remembered(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MOST_MISSED", 2)
    carrying = held.cluster.dispatcher
    cast("InProcessTransport", carrying.transport)._state = "reconnecting"
    for number in range(3):
        await carrying._cancel("_default", f"_INBOX.{number}", [])
    assert list(carrying._missed) == ["_INBOX.1", "_INBOX.2"]


async def test_a_deadline_ends_the_work_too(held: Held) -> None:
    first = held.ask("first")
    await held.until_at_work()
    late = await held.ask("too late", **{"X-SIE-Timeout-Ms": "300"})
    assert (late.status_code, late.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
    await held.until_at_work(1)
    held.hold.unlink()
    assert (await first).status_code == 200
    await held.cluster.until(lambda: held.cluster.sidecar.in_flight == 0)
    assert await held.cluster.transport.backlog(QUEUE) == {}
    assert "too late" not in held.ran()


async def test_what_was_at_a_worker_that_ended_runs_again_alone(held: Held) -> None:
    asked = [held.ask(f"text {number}") for number in range(3)]
    await held.until_at_work(3)
    held.end_adapter()
    await held.cluster.until(lambda: held.cluster.metric("sie_gateway_slices_again_total") == 3)
    await held.cluster.until(lambda: held.cluster.sidecar.in_flight == 3)
    await held.until_at_work(1)
    held.hold.unlink()
    assert [reply.status_code for reply in await asyncio.gather(*asked)] == [200] * 3
    assert held.cluster.ended("lost") == 3


async def test_a_slice_at_whose_work_two_workers_ended_is_refused_and_its_bystander_is_answered(held: Held) -> None:
    asked = [held.ask(f"text {number}") for number in range(2)]
    await held.until_at_work(2)
    held.end_adapter()
    await held.cluster.until(lambda: held.cluster.ended("lost") == 2)
    await held.until_at_work(1)
    held.end_adapter()
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result().json()["error"]["code"] for each in done] == ["INTERNAL_ERROR"]
    held.hold.unlink()
    assert [(await each).status_code for each in waiting] == [200]
    letter = await dead_letter(held.cluster)
    assert letter.why.startswith("A worker ended while it was at work")
    assert letter.texts in (["text 0"], ["text 1"])


async def test_a_slice_given_to_workers_too_often_is_refused_and_kept(tmp_path: Path) -> None:
    async with running(tmp_path, max_deliver=1) as cluster:
        reply = await cluster.client.post("/v1/encode/sie-fake/embedder", json={"items": [{"text": "a text"}]})
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
        letter = await dead_letter(cluster)
        assert letter.why.startswith("Workers were given this request again and again")
        assert letter.texts == ["a text"]
        assert await cluster.transport.backlog(QUEUE) == {}


async def test_a_worker_that_comes_is_told_what_requests_wait_for(held: Held) -> None:
    """Those that are in flight: it need not wait for the next request."""
    asked = held.ask("a text")
    await held.until_at_work()
    needed: asyncio.Queue[Message] = asyncio.Queue()
    await held.cluster.transport.subscribe(needed_subject("_default"), needed.put_nowait)
    held.cluster.dispatcher.tell_again()
    async with asyncio.timeout(30):
        assert (await needed.get()).payload.decode() == work_subject(MODEL, "_default", "default")
    held.hold.unlink()
    assert (await asked).status_code == 200


async def test_work_whose_broadcast_was_missed_is_told_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "AGAIN_S", 0.5)
    held.hold.unlink()
    transport = cast("InProcessTransport", held.cluster.transport)
    heard = transport._broker.subscriptions
    (hears,) = [each for each in heard if each.subject == needed_subject("_default")]
    heard.remove(hears)
    asked = held.ask("a text")
    while not await transport.backlog(QUEUE):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    heard.append(hears)
    assert (await asked).status_code == 200


async def test_a_slice_whose_message_is_gone_is_sent_again_and_the_second_result_is_dropped(held: Held) -> None:
    asked = held.ask("a text")
    await held.until_at_work()
    (part,) = next(iter(held.cluster.dispatcher._flights.values())).parts
    assert part.sequence is not None
    await held.cluster.transport.delete_work(QUEUE, part.sequence)
    await held.until_at_work(2)
    held.hold.unlink()
    assert (await asked).status_code == 200
    await held.cluster.until(lambda: held.cluster.metric("sie_gateway_results_dropped_total") == 1)


async def test_a_slice_that_comes_again_to_the_sidecar_that_holds_it_runs_once(held: Held) -> None:
    """Its process stood still for longer than the ack wait, and was given what it had."""
    asked = held.ask("a text")
    await held.until_at_work()
    (slice_,) = held.cluster.sidecar.slices._held.values()
    slice_.delivery.nak()
    pulled = held.cluster.sidecar_metrics.pulled
    await held.cluster.until(lambda: next(iter(pulled.collect())).samples[0].value == 2)
    assert held.cluster.sidecar.in_flight == 1
    held.hold.unlink()
    assert (await asked).status_code == 200
    await held.cluster.until(lambda: held.cluster.sidecar.in_flight == 0)
    assert await held.cluster.transport.backlog(QUEUE) == {}
    assert held.journal.read_text().count('"a text"') == 1


async def test_what_a_sidecar_had_that_ended_is_not_computed_on(held: Held) -> None:
    sidecar = await Other.connect(held)
    sidecar.stream.send(Kind.WORK, 1, one_text("first"))
    await held.cluster.until(lambda: "first" in held.ran())
    sidecar.stream.send(Kind.WORK, 2, one_text("never run"))
    await held.until_at_work(2)
    sidecar.stream.abort()
    await held.cluster.until(lambda: held.cluster.intake.in_flight == 0)
    held.hold.unlink()
    assert (await held.ask("another")).status_code == 200
    assert "never run" not in held.ran()


async def test_a_slice_that_is_called_off_as_it_comes_leaves_nothing(held: Held) -> None:
    sidecar = await Other.connect(held)
    sidecar.stream.send(Kind.WORK, 1, one_text("a text"))
    sidecar.stream.send(Kind.CANCEL, 1)
    sidecar.stream.send(Kind.PING, 7)
    await sidecar.next(Kind.PING)
    await held.cluster.until(lambda: held.cluster.intake.in_flight == 0)


async def test_a_sidecar_that_drains_gives_back_what_was_not_begun(held: Held) -> None:
    asked = held.ask("at work")
    await held.until_at_work()
    held.cluster.sidecar.close()
    held.cluster.hear_of_another()
    later = held.ask("for another worker")
    backlog = {work_subject(MODEL, "_default", "default"): 2}
    async with asyncio.timeout(30):
        while await held.cluster.transport.backlog(QUEUE) != backlog:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    held.hold.unlink()
    assert (await asked).status_code == 200
    assert await held.cluster.sidecar.idle(30)
    later.cancel()


async def test_a_slice_that_names_another_model_or_a_foreign_inbox_is_refused(held: Held) -> None:
    cluster = held.cluster
    inbox = await cluster.transport.inbox(lambda _: None)
    good = WorkHead("r", 0, 1, 1, "encode", MODEL, b"k" * 16, 0, 1, 1, f"{inbox.subject}.1")
    held.hold.unlink()
    assert (await held.ask("that the model is pulled")).status_code == 200
    for number, bad in enumerate(
        (
            encode_work(good._replace(model="test/other"), b"\x80", [b"\x80"]),
            encode_work(good._replace(reply="sie.cancel._default"), b"\x80", [b"\x80"]),
            encode_work(good._replace(reply=f"{inbox.subject}.*"), b"\x80", [b"\x80"]),
            b"no frame",
            encode_work(good, b"\x80", [b"\x80"])[:-1],
        )
    ):
        work = Work(work_subject(MODEL, "_default", "default"), f"bad{number}", bad)
        await cluster.transport.publish(work, lambda _: None)
    await cluster.until(lambda: cluster.ended("refused") == 5)
    assert (await held.ask("and nothing fell over")).status_code == 200
    assert await cluster.transport.backlog(QUEUE) == {}


def test_a_socket_that_a_process_listens_on_is_not_taken_over_and_a_dead_one_is(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen_on(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ListenError, match="another adapter process"):
            listen_on(path)
    with listen_on(path):
        pass
    path.unlink()
    path.write_text("a file")
    with pytest.raises(ListenError, match="no socket"):
        listen_on(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_a_process_of_another_user_is_refused_even_where_it_may_connect() -> None:
    connect = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.settimeout(20);"
        "s.connect(sys.argv[1]); print(len(s.recv(1)))"
    )
    with tempfile.TemporaryDirectory() as folder:  # one of pytest's cannot be entered by others
        async with running(Path(folder)) as cluster:
            path = f"{folder}/ipc"
            for each in (folder, path):
                os.chmod(each, 0o777)  # noqa: PTH101 - no path that blocks the loop
            before = cluster.intake.connections
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-c", connect, path, stdout=subprocess.PIPE
            )
            out, _ = await process.communicate()
            assert out == b"0\n"
            assert cluster.intake.connections == before


async def test_frames_that_lie_about_their_length_or_kind_end_the_connection() -> None:
    for bad in (b"\xff\xff\xff\xff\x01" + bytes(8), b"\x00\x00\x00\x00\x63" + bytes(8)):
        ours, theirs = socket.socketpair()
        closed = asyncio.Event()

        def frame(*_: object) -> None:
            raise AssertionError("there is no frame")

        stream = FrameStream(lambda _: None, frame, lambda _, closed=closed: closed.set())  # type: ignore[misc]
        await asyncio.get_running_loop().connect_accepted_socket(lambda stream=stream: stream, ours)
        theirs.sendall(bad)
        async with asyncio.timeout(30):
            await closed.wait()
        theirs.close()
