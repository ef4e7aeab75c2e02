"""Tells of a request that the engine would refuse at once, before anything is made for it."""

from __future__ import annotations

from dataclasses import dataclass

from sie_core.contracts import InferenceError, InferenceRequest
from sie_core.engine.engine import Engine
from sie_core.engine.requests.task import resolve_task


@dataclass(frozen=True, slots=True)
class Refusing:
    """The refusals of one engine. Used on the event loop."""

    engine: Engine

    def refuse(self, request: InferenceRequest) -> None:
        """Raise `QUEUE_FULL` where `infer` would at once; it is to be called where this does not.

        Other errors are those that it would raise, and are not counted.
        """
        engine = self.engine
        resolved = engine.catalog.resolve(request.model)
        model = engine.lifecycle.loaded(resolved)
        if model is None or engine.admission.closed_because is not None:
            return
        asked = resolve_task(request, model, engine.installed.output_dtypes, engine.every_option)
        if asked.lora is not None:  # it may have to be waited for first
            return
        try:
            engine.pipeline.refuse(request, model)
        except InferenceError as error:
            if error.code == "QUEUE_FULL":
                engine.metrics.requests.labels(request.operation, resolved.id, error.code).inc()
            raise
