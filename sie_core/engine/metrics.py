"""Every metric of the engine, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sie_core.contracts import Batch, DeviceMemory, InferenceError, InferenceReply

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COSTS = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class EngineMetrics:
    """The engine's metrics. Model labels are ids of the catalog only, so their number is bounded.

    Args:
        registry: Where they are registered; None makes a new one.
        detailed: Whether batches are described by units, prediction error and waiting time too.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, detailed: bool = False) -> None:
        self.registry = registry = registry or CollectorRegistry()
        self.detailed = detailed
        self.requests = Counter(
            "sie_requests", "Requests answered; `outcome` is ok, cancelled or an error code.",
            ["operation", "model", "outcome"], registry=registry,
        )  # fmt: skip
        self.stage_seconds = Histogram(
            "sie_request_stage_seconds", "Seconds a request spent in each stage.",
            ["model", "stage"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.items = Counter("sie_items", "Items answered.", ["model"], registry=registry)
        self.tokens = Counter("sie_input_tokens", "Tokens of answered requests.", ["model"], registry=registry)
        self.truncated = Counter(
            "sie_truncated_items", "Items cut to the model's length.", ["model"], registry=registry
        )
        self.non_finite = Counter(
            "sie_non_finite_outputs", "Items refused for NaN or infinity.", ["model"], registry=registry
        )
        self.dropped = Counter(
            "sie_dropped_units", "Queued units that never ran; `reason` is cancelled, expired or failed.",
            ["model", "reason"], registry=registry,
        )  # fmt: skip
        self.batches = Counter("sie_batches", "Batches run.", ["model"], registry=registry)
        self.batch_failures = Counter(
            "sie_batch_failures", "Batches that failed; `reason` is out_of_memory or error.",
            ["model", "reason"], registry=registry,
        )  # fmt: skip
        self.batch_cost = Histogram(
            "sie_batch_cost", "Cost units of a batch.", ["model"], buckets=_COSTS, registry=registry
        )
        self.batch_requests = Histogram(
            "sie_batch_requests", "Distinct requests of a batch.", ["model"], buckets=_COUNTS, registry=registry
        )
        self.batch_seconds = Histogram(
            "sie_batch_seconds", "Seconds a batch ran.", ["model"], buckets=_SECONDS, registry=registry
        )
        self.loads = Counter(
            "sie_model_loads", "Loads of a model; `outcome` is ok or a failure's class.",
            ["model", "outcome"], registry=registry,
        )  # fmt: skip
        self.load_seconds = Gauge(
            "sie_model_load_stage_seconds", "Seconds each stage of the last load took.",
            ["model", "stage"], registry=registry,
        )  # fmt: skip
        self.unloads = Counter("sie_model_unloads", "Unloads of a model.", ["model"], registry=registry)
        self.model_memory = Gauge(
            "sie_model_memory_bytes", "Bytes the last load of a model was measured to take.",
            ["model"], registry=registry,
        )  # fmt: skip
        self.evictions = Counter(
            "sie_model_evictions", "Unloads for lack of memory or use; `reason` is load, background or out_of_memory.",
            ["model", "reason"], registry=registry,
        )  # fmt: skip
        self.config_problems = Gauge(
            "sie_model_config_problems", "Model configs that are not served as they are written.", registry=registry
        )
        self.unfollowed = Gauge(
            "sie_models_folder_unfollowed", "1 while the models folder cannot be read or followed.", registry=registry
        )
        self._memory_used = Gauge("sie_device_memory_used_bytes", "Bytes of the device in use.", registry=registry)
        self._memory_total = Gauge(
            "sie_device_memory_total_bytes", "Bytes of the device, or of the limit set for it.", registry=registry
        )
        self._in_flight = Gauge("sie_requests_in_flight", "Requests admitted and not yet answered.", registry=registry)
        self._failing = Gauge("sie_models_failing", "Models whose last requests all failed.", registry=registry)
        self._stalled_fetches = Gauge(
            "sie_model_fetches_stalled", "Loads of whose weights nothing has come for minutes.", registry=registry
        )
        self._queued_units = Gauge("sie_queue_units", "Units queued for the device.", registry=registry)
        self._queued_cost = Gauge("sie_queue_cost", "Cost units queued for the device.", registry=registry)
        if detailed:
            self.batch_units = Histogram(
                "sie_batch_units", "Units of a batch.", ["model"], buckets=_COUNTS, registry=registry
            )
            self.batch_wait = Histogram(
                "sie_batch_wait_seconds", "Seconds the oldest unit of a batch had been queued.",
                ["model"], buckets=_SECONDS, registry=registry,
            )  # fmt: skip
            self.batch_prediction = Histogram(
                "sie_batch_prediction_ratio", "Measured over predicted seconds of a batch.",
                ["model"], buckets=(0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 4), registry=registry,
            )  # fmt: skip

    def measured(self, memory: DeviceMemory) -> None:
        """Show the memory of the device as it was just measured."""
        self._memory_used.set(memory.used)
        self._memory_total.set(memory.total)

    def watch(
        self,
        in_flight: Callable[[], int],
        queued: Callable[[], tuple[int, int]],
        failing: Callable[[], int],
        stalled_fetches: Callable[[], int],
    ) -> None:
        """Read the gauges from these functions at each collection; `queued` gives units and cost units."""
        self._failing.set_function(failing)
        self._stalled_fetches.set_function(stalled_fetches)
        self._in_flight.set_function(in_flight)
        self._queued_units.set_function(lambda: queued()[0])
        self._queued_cost.set_function(lambda: queued()[1])


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """The metrics of `SIE_INSTRUMENTATION` for one model."""

    units: Histogram
    wait: Histogram
    prediction: Histogram


class ModelMetrics:
    """The metrics of one model, looked up once: labels cost more than counting."""

    def __init__(self, engine: EngineMetrics, model: str) -> None:
        self.items = engine.items.labels(model)
        self.tokens = engine.tokens.labels(model)
        self.truncated = engine.truncated.labels(model)
        self.non_finite = engine.non_finite.labels(model)
        self._cancelled_units = engine.dropped.labels(model, "cancelled")
        self._expired_units = engine.dropped.labels(model, "expired")
        self._failed_units = engine.dropped.labels(model, "failed")
        self.out_of_memory = engine.batch_failures.labels(model, "out_of_memory")
        self.failed_batches = engine.batch_failures.labels(model, "error")
        self._batches = engine.batches.labels(model)
        self._batch_cost = engine.batch_cost.labels(model)
        self._batch_requests = engine.batch_requests.labels(model)
        self._batch_seconds = engine.batch_seconds.labels(model)
        self._tokenization = engine.stage_seconds.labels(model, "tokenization")
        self._queue = engine.stage_seconds.labels(model, "queue")
        self._inference = engine.stage_seconds.labels(model, "inference")
        self._postprocessing = engine.stage_seconds.labels(model, "postprocessing")
        self._total = engine.stage_seconds.labels(model, "total")
        self._detail: BatchMetrics | None = None
        if engine.detailed:
            self._detail = BatchMetrics(
                engine.batch_units.labels(model), engine.batch_wait.labels(model), engine.batch_prediction.labels(model)
            )

    def ran(self, batch: Batch, waited_s: float, seconds: float) -> None:
        """Count a batch that ran."""
        self._batches.inc()
        self._batch_cost.observe(batch.cost)
        self._batch_requests.observe(batch.requests)
        self._batch_seconds.observe(seconds)
        if self._detail is not None:
            self._detail.units.observe(len(batch.units))
            self._detail.wait.observe(waited_s)
            if batch.predicted_s:
                self._detail.prediction.observe(seconds / batch.predicted_s)

    def dropped(self, error: InferenceError | None, units: int) -> None:
        """Count units that will not run because their request ended with `error`, or was cancelled."""
        if error is None:
            self._cancelled_units.inc(units)
        elif error.code == "DEADLINE_EXCEEDED":
            self._expired_units.inc(units)
        else:
            self._failed_units.inc(units)

    def answered(self, reply: InferenceReply) -> None:
        """Count a request that was answered."""
        timing = reply.timing
        self.items.inc(len(reply.items))
        self.tokens.inc(reply.usage.input_tokens)
        self.truncated.inc(reply.truncated)
        self._tokenization.observe(timing.tokenization_ms / 1000)
        self._queue.observe(timing.queue_ms / 1000)
        self._inference.observe(timing.inference_ms / 1000)
        self._postprocessing.observe((timing.postprocessing_ms or 0.0) / 1000)
        self._total.observe(timing.total_ms / 1000)
