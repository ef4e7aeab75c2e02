"""`python -m tests.bench.fairness.attacking`: sends attacks from a process of its own until it is told to end.

Replies are read and dropped.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any, cast

import httptools

from tests.bench.fairness.attacks import ATTACKS, Attack, Sent

REFUSED_S = 0.05
"""Who is refused asks again, but not in a busy loop."""


class Attacker(asyncio.Protocol):
    """One connection that sends one request after the other."""

    def __init__(self, attack: Attack, sent: Sent, seen: dict[str, Any], over: asyncio.Event) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._attack, self._sent, self._seen, self._over = attack, sent, seen, over
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        if self._over.is_set() or self._transport.is_closing():
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._size = 0
        self._transport.write(self._sent.data)

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        self._seen["reply"] = max(self._seen["reply"], self._size)
        self._parser.feed_data(data)
        if self._attack.bytes_a_second is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            wait_s = len(data) / self._attack.bytes_a_second
            asyncio.get_running_loop().call_later(wait_s, self._resume)

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def on_message_complete(self) -> None:
        status = str(self._parser.get_status_code())
        self._seen["answers"][status] += 1
        least_s = 0.0 if status == "200" else REFUSED_S
        asyncio.get_running_loop().call_later(max(least_s, self._attack.pause_s), self._send)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def attack(host: str, port: int, number: int, share: float, over: asyncio.Event) -> dict[str, Any]:
    """Send one attack until it is over; what is in flight then is abandoned."""
    chosen = ATTACKS[number]
    sent = chosen.make(share)
    seen: dict[str, Any] = {"answers": Counter(), "reply": 0, "body": sent.body}
    loop = asyncio.get_running_loop()
    while not over.is_set():
        made = [
            await loop.create_connection(lambda: Attacker(chosen, sent, seen, over), host, port)
            for _ in range(chosen.at_once)
        ]
        ends = asyncio.gather(*(each.done for _, each in made))
        await asyncio.wait([ends, waiting := asyncio.ensure_future(over.wait())], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for transport, _ in made:
            transport.abort()
        await ends
    return seen


async def work(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Send the attacks of a job side by side, until a line comes or the input ends."""
    over = asyncio.Event()
    tasks = [
        asyncio.create_task(attack(job["host"], job["port"], number, job["share"], over)) for number in job["attacks"]
    ]
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    print("begun", flush=True)
    await asyncio.wait([reading, *tasks], return_when=asyncio.FIRST_COMPLETED)
    over.set()
    return await asyncio.gather(*tasks)


def main() -> None:
    """Read a job, do it, tell what came back."""
    print(json.dumps(asyncio.run(work(json.loads(sys.stdin.readline())))), flush=True)


if __name__ == "__main__":
    main()
