"""An engine that is started again when it ends."""

from __future__ import annotations

import logging
import threading
from typing import Any

import httpx

from sie_core.contracts import InferenceError, ModelLoadError, OutOfDeviceMemory
from sie_sglang.engine.child import OUT_OF_MEMORY, Child
from sie_sglang.engine.launch import Launch

log = logging.getLogger(__name__)

PAUSES_S = (0.0, 1.0, 4.0, 16.0, 60.0)
"""Pauses before the attempts of one restart; after the last the model stays down until it is loaded again."""


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
            self._child = child
            if self._closing.is_set():  # `close` may have looked before
                child.end()
            return
        self._failure = f"The engine of {self._launch.model} could not be started again: {problem}"
