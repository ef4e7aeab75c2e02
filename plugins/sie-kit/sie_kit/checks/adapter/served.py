"""The check of a model on the real engine: eight clients at once, some of which go, while the model is unloaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, InferenceRequest, Item, LoadWait, Operation, Task
from sie_kit.comparing import tolerance
from sie_kit.loading import QUERY, Items, LoadedModel, values_of
from sie_kit.outcomes import Skipped

if TYPE_CHECKING:
    from sie_core.engine import Engine

CLIENTS = 8
"""Clients at once: more than CPU threads of most machines."""
REQUESTS = 6
"""Requests of each client, one after the other."""
LIMIT_S = 100.0
"""Seconds within which all are answered; a model that takes longer hangs, or is far too slow for this check."""
LATE = ("DEADLINE_EXCEEDED", "MODEL_LOADING", "QUEUE_FULL")
"""What a request may be answered whose deadline passes: a queue refuses those whose answer would come too late."""
SOON_S = 0.002
"""Seconds until the deadline of requests that may come too late."""


def the_engine_serves_it(model: LoadedModel, items: Items) -> None:
    """Eight clients with mixed items and options get from the real engine what each gets alone.

    Meanwhile some leave, some have deadlines that pass, and the model is unloaded and loaded again.
    """
    if model.serve is None:
        raise Skipped("it cannot be served here")
    with model.serve() as served:
        storm = asyncio.run_coroutine_threadsafe(_storm(served.engine, model, items), served.loop)
        try:
            storm.result(LIMIT_S + 10)
        except TimeoutError:
            storm.cancel()
            raise AssertionError(f"eight clients were not answered within {LIMIT_S:.0f} s: it hangs") from None
        except InferenceError as error:
            raise AssertionError(f"the engine answers {error.code}: {error.message}") from error


async def _storm(engine: Engine, model: LoadedModel, items: Items) -> None:
    async with asyncio.timeout(LIMIT_S):
        for task in model.tasks():
            choices = [{}, *(await _choices(engine, model, items[0], task))]
            alone = [[(await _ask(engine, model, [item], task, each))[0] for item in items] for each in choices]
            clients = [_client(engine, model, items, task, choices, alone, seed) for seed in range(CLIENTS)]
            running = asyncio.gather(*clients)
            try:
                unloaded = await engine.unload(model.resolved.id)
                await running
            finally:
                running.cancel()
            assert unloaded, "the model could not be unloaded while clients asked it"


async def _choices(engine: Engine, model: LoadedModel, item: Item, task: Task) -> list[Mapping[str, Any]]:
    """Choose up to three values of options that the model takes."""
    found: list[Mapping[str, Any]] = []
    for option in model.options(task):
        for value in values_of(option)[-1:]:
            try:
                await _ask(engine, model, [item], task, {option.name: value})
            except InferenceError:
                continue
            found.append({option.name: value})
    return found[:3]


async def _client(
    engine: Engine,
    model: LoadedModel,
    items: Items,
    task: Task,
    choices: Sequence[Mapping[str, Any]],
    alone: Sequence[Sequence[Any]],
    seed: int,
) -> None:
    draw, most = Random(seed), 10 * tolerance(model.adapter)
    for number in range(REQUESTS):
        choice = draw.randrange(len(choices))
        places = [draw.randrange(len(items)) for _ in range(draw.randint(1, 40))]
        asked = [items[place] for place in places]
        if number % 3 == 1:  # one that leaves, and one whose time is over
            await _leave(engine, model, asked, task, choices[choice])
            continue
        answers = await _ask(engine, model, asked, task, choices[choice])
        for place, answer in zip(places, answers, strict=True):
            far = _apart(alone[choice][place], answer)
            what = f"{task.operation} of {items[place].text!r} with {choices[choice] or 'no options'}"
            assert far <= most, f"{what} is {far:.1e} off among eight clients"


async def _leave(engine: Engine, model: LoadedModel, items: Items, task: Task, options: Mapping[str, Any]) -> None:
    leaving = asyncio.ensure_future(_ask(engine, model, items, task, options))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    try:
        await _ask(engine, model, items, task, options, deadline=time.monotonic() + SOON_S)
    except InferenceError as error:
        if error.code not in LATE:
            raise


async def _ask(
    engine: Engine,
    model: LoadedModel,
    items: Items,
    task: Task,
    options: Mapping[str, Any],
    deadline: float | None = None,
) -> list[Any]:
    operation: Operation = task.operation
    # A profile may have a postprocessor make other outputs than the adapter's.
    outputs = None if "output_types" in model.resolved.profile.runtime else task.output_types
    request = InferenceRequest(
        model=model.resolved.id,
        operation=operation,
        items=items,
        request_id="kit",
        output_types=outputs or None,
        labels=task.labels,
        query=QUERY if operation == "score" else None,
        options=options,
        deadline=deadline,
        load_wait=LoadWait(LIMIT_S),
    )
    return [unpack(item) for item in (await engine.infer(request)).items]


def _apart(one: Any, other: Any) -> float:
    """Return the largest difference of numbers in two encoded items; infinite if anything else differs."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return float("inf")
        return max((_apart(one[key], other[key]) for key in one if key not in ("id", "item_id")), default=0.0)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape:
            return float("inf")
        return float(np.max(np.abs(one - other), initial=0.0)) / max(1.0, float(np.max(np.abs(one), initial=0.0)))
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return float("inf")
        return max(map(_apart, one, other), default=0.0)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) / max(1.0, abs(one))
    return 0.0 if one == other else float("inf")
