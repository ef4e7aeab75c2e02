"""`/ws/status`: the state of the server, sent five times a second over a WebSocket."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from sie_core import __version__
from sie_core.api.context import Api
from sie_core.api.ops.health import ready_problem
from sie_core.contracts import EngineStatus, ModelInfo, WatchableBackend

PATH: Final = "/ws/status"
PERIOD_S: Final = 0.2
MOST_WATCHERS: Final = 64
TRY_AGAIN_LATER: Final = 1013
"""The close code of RFC 6455's registry."""
SATURATED_FROM, SATURATED_UNTIL = 0.9, 0.7
"""Shares of the requests that may be in flight."""


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter()
    feed = Feed(api)

    @routes.websocket(PATH)
    async def status(websocket: WebSocket) -> None:
        """Send until the client disconnects or the server stops."""
        await websocket.accept()
        if feed.watchers >= MOST_WATCHERS:
            await websocket.close(TRY_AGAIN_LATER, f"{MOST_WATCHERS} clients watch already")
            return
        feed.watchers += 1
        gone = asyncio.create_task(_until_gone(websocket))
        try:
            while not gone.done():
                await websocket.send_text(feed.text())
                await asyncio.wait([gone], timeout=PERIOD_S)
        except WebSocketDisconnect:
            pass
        finally:
            feed.watchers -= 1
            gone.cancel()

    return routes


async def _until_gone(websocket: WebSocket) -> None:
    """Ignore the messages of the client."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


class Feed:
    """The message to all watchers, made once for all that are sent it at the same time."""

    def __init__(self, api: Api) -> None:
        self.watchers = 0
        self._api = api
        self._saturated = False
        self._text = ""
        self._made_at = -PERIOD_S
        self._constant = {
            "name": socket.gethostname(),
            "machine_profile": api.machine_profile,
            "pool_name": "default",
            "bundle": "default",
            "bundle_config_hash": "",
            "max_batch_requests": api.settings.max_batch_requests,
        }

    def text(self) -> str:
        """Return the current message."""
        now = time.monotonic()
        if now - self._made_at >= PERIOD_S / 2:
            self._text, self._made_at = orjson.dumps(self._describe()).decode(), now
        return self._text

    def _describe(self) -> dict[str, Any]:
        api, health = self._api, self._api.backend.health()
        status = api.backend.status() if isinstance(api.backend, WatchableBackend) else None
        models = sorted(api.backend.models(), key=lambda model: -(model.memory_bytes or 0))
        gpus = _gpus(status)
        return self._constant | {
            "timestamp": time.time(),
            "ready": ready_problem(api, health) is None,
            "gpu_count": len(gpus),
            "loaded_models": [model.id for model in models if model.state == "loaded"],
            "saturated": self._is_saturated(),
            "server": _server(api),
            "gpus": gpus,
            "models": [_model(model, status) for model in models],
        }

    def _is_saturated(self) -> bool:
        share = self._api.gate.in_flight / self._api.settings.max_concurrent_requests
        self._saturated = share >= (SATURATED_UNTIL if self._saturated else SATURATED_FROM)
        return self._saturated


def _server(api: Api) -> dict[str, Any]:
    return {
        "version": __version__,
        "uptime_seconds": round(time.time() - api.started_at, 3),
        "user": _user(),
        "working_dir": str(Path.cwd()),
        "pid": os.getpid(),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id that no name was given, as in containers
        return str(os.getuid())


def _gpus(status: EngineStatus | None) -> Sequence[dict[str, Any]]:
    """Describe the device; None for the processor."""
    if status is None or status.device.kind == "cpu":
        return []
    name, memory = status.device.name, status.memory
    return [
        {
            "device": str(status.device),
            "name": name,
            "gpu_type": name.removeprefix("NVIDIA ").lower().replace(" ", "-"),
            "utilization_pct": None,
            "memory_used_bytes": None if memory is None else memory.used,
            "memory_total_bytes": None if memory is None else memory.total,
            "memory_threshold_pct": 100 * status.threshold,
        }
    ]


def _model(model: ModelInfo, status: EngineStatus | None) -> dict[str, Any]:
    queued = 0 if status is None else status.queued.get(model.id, 0)
    return {
        "name": model.id,
        "state": model.state,
        "device": str(status.device) if status and model.state == "loaded" else None,
        "memory_bytes": (model.memory_bytes or 0) if model.state == "loaded" else 0,
        "config": {
            "hf_id": model.id.partition(":")[0],
            "adapter": model.adapter,
            "inputs": model.inputs,
            "outputs": model.outputs,
            "dims": {name: dim for name, dim in model.dims.items() if dim is not None},
            "max_sequence_length": model.max_sequence_length,
        },
        "queue_depth": queued,
        "queue_pending_items": queued,
    }
