"""An engine that is started again when it ends."""

from __future__ import annotations

import itertools
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from sie_core.contracts import InferenceError, ModelLoadError, OutOfDeviceMemory
from sie_sglang.engine.child import OUT_OF_MEMORY, Child, PortTakenError
from sie_sglang.engine.launch import Launch

log = logging.getLogger(__name__)

PAUSES_S = (0.0, 1.0, 4.0, 16.0, 60.0)
"""Pauses before the attempts of one restart; after the last the model stays down until it is loaded again."""
CONTROL_S = 5.0
"""Bounds the wait for the engine to take note of an abort."""


class Engine:
    """The engine of one model. `ask` may be called from several threads at once."""

    def __init__(self, launch: Launch, *, start_s: float, answer_s: float) -> None:
        """Start it, and wait until it answers.

        Args:
            launch: The model, and how it is started.
            start_s: Seconds that a start may take.
            answer_s: Seconds that an answer may take.

        Raises:
            ModelLoadError: It did not start; quotes the end of its log.
            OutOfDeviceMemory: The device has no room.
        """
        self._launch, self._start_s, self._answer_s = launch, start_s, answer_s
        self._closing = threading.Event()
        self._failure: str | None = None
        self._loras: dict[str, Path] = {}
        self._lora_numbers = itertools.count()
        self._lora_lock = threading.Lock()
        self._child: Child | None = self._started()
        self._watcher = threading.Thread(target=self._watch, name=f"sglang of {launch.model}", daemon=True)
        self._watcher.start()

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Post a body; return the decoded answer.

        Raises:
            OutOfDeviceMemory: The engine says so.
            InferenceError: `MODEL_LOADING`: it is being started again. `MODEL_LOAD_FAILED`: that failed too often.
                `QUEUE_UNAVAILABLE`: it failed on this batch. `INFERENCE_ERROR`: it refuses the batch.
        """
        child = self._child
        if child is None:
            raise self._down()
        try:
            status, answer = child.post(path, body, self._answer_s)
        except httpx.TimeoutException:
            log.error("the engine of %s gave no answer in %g s and is killed", self._launch.model, self._answer_s)
            threading.Thread(target=child.end, daemon=True).start()
            raise self._down() from None
        except (httpx.TransportError, RuntimeError):  # the latter of a client that was closed meanwhile
            raise self._down() from None
        if status == httpx.codes.OK and answer is not None:
            return answer
        said = str(answer)
        if any(sign in said for sign in OUT_OF_MEMORY):
            raise OutOfDeviceMemory
        log.error("the engine of %s answered %d: %.500s", self._launch.model, status, said)
        if 400 <= status < 500:
            raise InferenceError("INFERENCE_ERROR", f"The engine of {self._launch.model} refused a batch ({status}).")
        raise self.wrong(f"answered {status}")

    def wrong(self, what: str) -> InferenceError:
        """Make the error of an answer that cannot be used."""
        return InferenceError("QUEUE_UNAVAILABLE", f"The engine of {self._launch.model} {what}. Retry.")

    def abort(self, request: str) -> None:
        """Have the engine drop the sequences whose ids begin with `request`; nothing happens if it has none."""
        child = self._child
        if child is not None:
            with suppress(httpx.TransportError, RuntimeError):
                child.post("/abort_request", {"rid": request}, CONTROL_S)

    def load_lora(self, folder: Path) -> str:
        """Load a LoRA adapter; return its name for requests. Each engine that is started gets it again.

        Raises:
            ModelLoadError: `CONFIG`: the engine refuses it.
            InferenceError: As `ask`.
        """
        with self._lora_lock:
            child = self._child
            if child is None:
                raise self._down()
            name = f"lora-{next(self._lora_numbers)}"
            if not self._give_lora(child, name, folder):
                raise ModelLoadError("CONFIG", "The engine refuses it; the server's log has its reason.")
            self._loras[name] = folder
            return name

    def unload_lora(self, name: str) -> None:
        """Unload a LoRA adapter that no request uses any more."""
        with self._lora_lock:
            del self._loras[name]
            child = self._child
            if child is not None:
                with suppress(httpx.TransportError, RuntimeError):
                    child.post("/unload_lora_adapter", {"lora_name": name}, self._answer_s)

    def _give_lora(self, child: Child, name: str, folder: Path) -> bool:
        try:
            body = {"lora_name": name, "lora_path": str(folder)}
            status, answer = child.post("/load_lora_adapter", body, self._answer_s)
        except (httpx.TransportError, RuntimeError):
            raise self._down() from None
        if status != httpx.codes.OK:
            log.error("the engine of %s refused a LoRA adapter: %.500s", self._launch.model, answer)
        return status == httpx.codes.OK

    def close(self) -> None:
        """End it, and wait until its processes are gone."""
        self._closing.set()
        if (child := self._child) is not None:
            child.end()
        self._watcher.join()

    def _down(self) -> InferenceError:
        if self._failure is not None:
            return InferenceError("MODEL_LOAD_FAILED", self._failure)
        return InferenceError("MODEL_LOADING", f"The engine of {self._launch.model} is being started again. Retry.")

    def _started(self) -> Child:
        try:
            return self._started_once()
        except PortTakenError:  # between the choice of a free port and its use
            return self._started_once()

    def _started_once(self) -> Child:
        child = Child(self._launch)
        try:
            child.await_ready(self._start_s, self._closing)
        except BaseException:
            child.end()
            raise
        return child

    def _watch(self) -> None:
        while (child := self._child) is not None:
            child.wait()
            self._child = None
            child.end()
            if self._closing.is_set():
                return
            log.error("the engine of %s ended: %s", self._launch.model, child.last_words)
            self._restart()

    def _restart(self) -> None:
        problem = ""
        for pause in PAUSES_S:
            if self._closing.wait(pause):
                return
            try:
                child = self._started()
            except (ModelLoadError, OutOfDeviceMemory, OSError) as error:
                problem = str(error) or "the device has no room"
                log.error("the engine of %s could not be started again: %s", self._launch.model, problem)
                continue
            try:
                with self._lora_lock:
                    for name, folder in self._loras.items():
                        self._give_lora(child, name, folder)
                    self._child = child
            except InferenceError:  # it ended meanwhile
                child.end()
                continue
            if self._closing.is_set():  # `close` may have looked before
                child.end()
            return
        self._failure = f"The engine of {self._launch.model} could not be started again: {problem}"
