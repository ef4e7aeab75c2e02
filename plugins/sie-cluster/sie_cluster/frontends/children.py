"""The front ends as the process with the device has them: it starts them, and answers what they send."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sie_cluster.frontends.tally import taker
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.programs.processes import Program
from sie_cluster.worker.intake import Intake
from sie_core.api import Gate
from sie_core.api.http.metrics import HttpMetrics
from sie_core.concurrency.tasks import within
from sie_core.contracts import (
    DecodeRequest,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    Token,
    TokenizeRequest,
    Tracer,
)
from sie_core.engine import Engine
from sie_core.settings import Settings

CLOSE_S = 5.0
"""How long front ends may take to close their connections and end; who takes longer is killed."""
Asked = TypeVar("Asked", InferenceRequest, TokenizeRequest, DecodeRequest)


class Gated:
    """The engine behind the gate of all front ends.

    Args:
        engine: Answers.
        gate: Bounds the requests in flight, each client's part of them, and those that wait for a load.
    """

    def __init__(self, engine: Engine, gate: Gate) -> None:
        self._engine, self._gate = engine, gate

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Answer a request."""
        with self._admitted(request.client):
            return await self._engine.infer(self._with_places(request))

    async def tokenize(self, request: TokenizeRequest) -> Sequence[Sequence[Token]]:
        """List the tokens of texts."""
        with self._admitted():
            return await self._engine.tokenize(self._with_places(request))

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Write the texts of tokens."""
        with self._admitted():
            return await self._engine.decode(self._with_places(request))

    async def describe(self, model: str) -> ModelInfo:
        """Describe one model."""
        return await self._engine.describe(model)

    async def load(self, model: str, lora: str | None = None) -> None:
        """Load a model."""
        await self._engine.load(model, lora)

    def _with_places(self, request: Asked) -> Asked:
        return replace(request, load_wait=replace(request.load_wait, place=self._gate.waiting))

    @contextmanager
    def _admitted(self, client: str | None = None) -> Iterator[None]:
        # A front end that drains too has let it in.
        self._gate.enter(client, also_closed=True)
        try:
            yield
        finally:
            self._gate.leave(client=client)


class FrontEnds:
    """The front ends of this process; also the gate that `Drain` closes.

    Args:
        settings: The settings in force.
        listeners: The clients' sockets, one for each front end.
        inner: Where this process answers lookups.
        entry: Where front ends connect.
        folder: Of `inner` and `entry`.
    """

    def __init__(
        self,
        settings: Settings,
        listeners: Sequence[socket.socket],
        inner: socket.socket,
        entry: socket.socket,
        folder: Path,
    ) -> None:
        self.inner, self._entry = inner, entry
        self._settings, self._listeners, self._folder = settings, listeners, folder
        self._programs: list[Program] = []
        self._ended = asyncio.Event()

    def join(
        self, engine: Engine, gate: Gate, metrics: HttpMetrics, profile: str | None, tracer: Tracer | None
    ) -> FrontEnds:
        """Take what this process answers by."""
        self._gate = gate
        self._intake = Intake(
            Gated(engine, gate),
            lambda: encode_status(WorkerStatus(ready=True)),
            lambda: (0.0, True),
            most_waiting=sys.maxsize,  # the gate bounds them
            batch_bytes=sys.maxsize,
            tracer=tracer,
            tally=taker(metrics),
            logs=False,
        )
        self._programs = [self._program(place, each, profile) for place, each in enumerate(self._listeners)]
        return self

    async def run(self) -> None:
        """Keep the front ends running until cancelled."""
        await self._intake.listen(self._entry)
        await asyncio.gather(*(each.run() for each in self._programs))
        self._ended.set()
        await asyncio.Event().wait()

    @property
    def in_flight(self) -> int:
        """Requests that front ends have sent and are not answered."""
        return self._gate.in_flight

    def close(self) -> None:
        """Have the front ends turn new requests away."""
        self._gate.close()
        self._intake.close()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until none of them has a request in flight, and have them end; False if `timeout_s` passed first."""
        if not await within(self._intake.drained(), timeout_s):
            return False
        self._terminate()
        await within(self._ended.wait(), CLOSE_S)
        return True

    def abandon(self) -> int:
        """Have them refuse what is in flight, and end; return how many requests there were."""
        in_flight = self._gate.in_flight
        self._terminate()
        self._intake.disconnect()
        return in_flight

    def _terminate(self) -> None:
        while self._programs:  # a second signal would end them at once
            self._programs.pop().terminate()

    def _program(self, place: int, listener: socket.socket, profile: str | None) -> Program:
        settings = self._settings
        variables = {
            "SIE_FRONTENDS": str(settings.frontends),
            "SIE_HTTP_HOST": settings.http_host,
            "SIE_DRAIN_TIMEOUT_S": str(settings.drain_timeout_s),
            "SIE_LOG_LEVEL": settings.log_level,
            "SIE_LOG_JSON": str(settings.log_json),
        }
        if profile is not None:
            variables["SIE_MACHINE_PROFILE"] = profile
        descriptor = listener.fileno()
        command = [sys.executable, "-P", "-m", "sie_cluster.frontends.front", str(descriptor), str(self._folder)]
        # SIGQUIT drains, and one more of them ends nobody at once: the end of the connection tells the same.
        return Program(f"front end {place}", command, variables, death_signal=signal.SIGQUIT, inherited=(descriptor,))
