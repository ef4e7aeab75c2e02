"""What the engine tells of a request to its trace, where that is recorded."""

from __future__ import annotations

from sie_core.contracts import InferenceReply
from sie_core.engine.requests.inflight import Flight


def trace_request(flight: Flight, reply: InferenceReply | None, now: float) -> None:
    """Record the stages that a request went through; `reply` is None where it failed, or was given up, at `now`."""
    if (trace := flight.trace) is None:
        return
    ended = now if reply is None else flight.arrived + reply.timing.total_ms / 1000
    trace.stage("model", flight.arrived, flight.submitted, model=flight.model.id)
    if flight.prepared <= flight.submitted:
        trace.stage("prepare.wait", flight.submitted, ended)
        return
    trace.stage("prepare.wait", flight.submitted, flight.prepare_started)
    trace.stage("prepare", flight.prepare_started, flight.prepared)
    if flight.first_run is None:
        trace.stage("queue", flight.prepared, ended)
        return
    trace.stage("queue", flight.prepared, flight.first_run)
    trace.stage("batch", flight.first_run, flight.last_run, links=flight.batches)
    trace.stage("finish", flight.last_run, ended)
