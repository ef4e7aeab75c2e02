"""Every metric of the engine, in a separate registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sie_core.contracts import Batch, DeviceMemory, InferenceError, InferenceReply, QueuedRequest, QueuedUnit, Timing

# Upper bounds of the buckets of histograms: of seconds, and of the cost units of a batch.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COSTS = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
# The same of what takes seconds to minutes: loads, and waiting for them.
_LONG_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# The same of measured over predicted seconds, and of the units or requests of a batch.
_RATIOS = (0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 4)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_REQUEST: Callable[[QueuedUnit], QueuedRequest] = attrgetter("request")


class EngineMetrics:
    """The engine's metrics. Model labels are ids of the catalog only, so their number is bounded.

    Args:
        registry: The Prometheus registry; None creates one.
        detailed: Whether batches are described by units, prediction error and waiting time too.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, detailed: bool = False) -> None:
        self.registry = registry or CollectorRegistry()
        self.detailed = detailed
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        model = ["model"]

        self.requests = counter(
            "sie_requests",
            "Requests answered; `outcome` is ok, cancelled or an error code.",
            ["operation", "model", "outcome"],
        )
        self.stage_seconds = histogram(
            "sie_request_stage_seconds", "Seconds a request spent in each stage.", ["model", "stage"], buckets=_SECONDS
        )
        self.items = counter("sie_items", "Items answered.", model)
        self.tokens = counter("sie_input_tokens", "Tokens of answered requests.", ["model", "operation"])
        self.truncated = counter("sie_truncated_items", "Items cut to the model's length.", model)
        self.non_finite = counter("sie_non_finite_outputs", "Items refused for NaN or infinity.", model)
        self.dropped = counter(
            "sie_dropped_units",
            "Queued units that never ran; `reason` is cancelled, expired or failed.",
            ["model", "reason"],
        )
        self.wasted = counter(
            "sie_wasted_cost", "Cost units that ran for requests that ended meanwhile, mostly cancelled ones.", model
        )
        self.batches = counter("sie_batches", "Batches run.", model)
        self.batch_failures = counter(
            "sie_batch_failures", "Batches that failed; `reason` is out_of_memory or error.", ["model", "reason"]
        )
        self.batch_cost = histogram("sie_batch_cost", "Cost units of a batch.", model, buckets=_COSTS)
        self.batch_requests = histogram("sie_batch_requests", "Distinct requests of a batch.", model, buckets=_COUNTS)
        self.batch_seconds = histogram("sie_batch_seconds", "Seconds a batch ran.", model, buckets=_SECONDS)
        if detailed:
            self.batch_units = histogram("sie_batch_units", "Units of a batch.", model, buckets=_COUNTS)
            self.batch_wait = histogram(
                "sie_batch_wait_seconds", "Seconds the oldest unit of a batch had been queued.", model, buckets=_SECONDS
            )
            self.batch_prediction = histogram(
                "sie_batch_prediction_ratio", "Measured over predicted seconds of a batch.", model, buckets=_RATIOS
            )
        self.loads = counter(
            "sie_model_loads", "Loads of a model; `outcome` is ok or a failure's class.", ["model", "outcome"]
        )
        self.load_seconds = gauge(
            "sie_model_load_stage_seconds", "Seconds each stage of the last load took.", ["model", "stage"]
        )
        self.cold_start = histogram(
            "sie_model_cold_start_seconds",
            "Seconds that an answered request had waited for its model to be loaded.",
            model,
            buckets=_LONG_SECONDS,
        )
        self.first_batch = gauge(
            "sie_model_first_batch_seconds",
            "Seconds from the arrival of the first request after the last load to the end of its batch.",
            model,
        )
        self.tier_hits = counter(
            "sie_weight_tier_hits", "Repositories whose weights a load found, by the tier that had them.", ["tier"]
        )
        self.unloads = counter("sie_model_unloads", "Unloads of a model.", model)
        self.model_memory = gauge(
            "sie_model_memory_bytes", "Bytes the last load of a model was measured to take.", model
        )
        self.evictions = counter(
            "sie_model_evictions",
            "Unloads for lack of memory or use; `reason` is load, background or out_of_memory.",
            ["model", "reason"],
        )
        self.config_problems = gauge(
            "sie_model_config_problems", "Model configs that are not served as they are written."
        )
        self.unfollowed = gauge("sie_models_folder_unfollowed", "1 while the models folder cannot be read or followed.")
        self._memory_used = gauge("sie_device_memory_used_bytes", "Bytes of the device in use.")
        self._memory_total = gauge("sie_device_memory_total_bytes", "Bytes of the device, or of the limit set for it.")
        self._in_flight = gauge("sie_requests_in_flight", "Requests admitted and not yet answered.")
        self._live = gauge("sie_live", "0 while only a restart helps: what turns `/livez` red.")
        self._failing = gauge("sie_models_failing", "Models whose last requests all failed.")
        self._stalled_fetches = gauge(
            "sie_model_fetches_stalled", "Loads of whose weights nothing has come for minutes."
        )
        self._queued_units = gauge("sie_queue_units", "Units queued for the device.")
        self._queued_cost = gauge("sie_queue_cost", "Cost units queued for the device.")

    def measured(self, memory: DeviceMemory) -> None:
        """Publish a new measurement of the device's memory."""
        self._memory_used.set(memory.used)
        self._memory_total.set(memory.total)

    def watch(
        self,
        in_flight: Callable[[], int],
        queued: Callable[[], tuple[int, int]],
        failing: Callable[[], int],
        stalled_fetches: Callable[[], int],
        live: Callable[[], bool],
    ) -> None:
        """Read the gauges from these functions at each collection; `queued` gives units and cost units."""
        self._live.set_function(live)
        self._failing.set_function(failing)
        self._stalled_fetches.set_function(stalled_fetches)
        self._in_flight.set_function(in_flight)
        self._queued_units.set_function(lambda: queued()[0])
        self._queued_cost.set_function(lambda: queued()[1])


class ModelMetrics:
    """The metrics of one model, looked up once: labels cost more than counting."""

    def __init__(self, engine: EngineMetrics, model: str) -> None:
        self.items = engine.items.labels(model)
        self._tokens = cache(partial(engine.tokens.labels, model))
        self.truncated = engine.truncated.labels(model)
        self.non_finite = engine.non_finite.labels(model)
        self._dropped = {reason: engine.dropped.labels(model, reason) for reason in ("cancelled", "expired", "failed")}
        self.first_batch: Gauge | None = engine.first_batch.labels(model)
        """None once a batch has run since the load."""
        self.wasted = engine.wasted.labels(model)
        self.out_of_memory = engine.batch_failures.labels(model, "out_of_memory")
        self.failed_batches = engine.batch_failures.labels(model, "error")
        self._batches = engine.batches.labels(model)
        self._batch_cost = engine.batch_cost.labels(model)
        self._batch_requests = engine.batch_requests.labels(model)
        self._batch_seconds = engine.batch_seconds.labels(model)
        self._stages = {stage: engine.stage_seconds.labels(model, stage) for stage in Timing().stages_s}
        detail = (engine.batch_units, engine.batch_wait, engine.batch_prediction) if engine.detailed else ()
        self._detail = tuple(each.labels(model) for each in detail)

    def ran(self, batch: Batch, waited_s: float, seconds: float) -> None:
        """Count a batch that ran."""
        self._batches.inc()
        self._batch_cost.observe(batch.cost)
        self._batch_requests.observe(len(set(map(_REQUEST, batch.units))))
        self._batch_seconds.observe(seconds)
        if self._detail:
            units, wait, prediction = self._detail
            units.observe(len(batch.units))
            wait.observe(waited_s)
            if batch.predicted_s:
                prediction.observe(seconds / batch.predicted_s)

    def dropped(self, error: InferenceError | None, units: int) -> None:
        """Count units that will not run because their request ended with `error`, or was cancelled."""
        expired = error is not None and error.code == "DEADLINE_EXCEEDED"
        self._dropped["cancelled" if error is None else "expired" if expired else "failed"].inc(units)

    def answered(self, operation: str, reply: InferenceReply) -> None:
        """Count a request that was answered."""
        self.items.inc(len(reply.items))
        self._tokens(operation).inc(reply.usage.input_tokens)
        self.truncated.inc(reply.truncated)
        for stage, seconds in reply.timing.stages_s.items():
            self._stages[stage].observe(seconds)
