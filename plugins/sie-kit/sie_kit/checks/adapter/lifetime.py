"""Checks of a model's life: several at once, what it says it takes, what it leaves behind."""

from __future__ import annotations

import gc
import io
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from itertools import pairwise

import psutil

from sie_core.contracts import ItemOutput
from sie_kit.comparing import answer_alone, answer_shared, distance, tolerance
from sie_kit.loading import Items, LoadedModel
from sie_kit.outcomes import Skipped

PRECISIONS = ("float32", "float16", "bfloat16", "int8")
LOADS = 10
"""Loads of one check: enough to tell growth from what allocators keep once."""
LOADS_S = 5.0
"""Seconds after which no further load is made: large models are loaded less often than ten times."""
LEAK_BYTES = 2**20
"""Growth a load that counts as a leak; allocators keep less than that."""
LARGEST_SHARE = 8
"""How many times the bytes of its files a model may take: half precision in float32 twice, and a packed copy."""
SMALL_BYTES = 64 * 2**20
"""Bytes that any model may take beside its weights."""


def two_models_of_a_family_do_not_meet(model: LoadedModel, items: Items) -> None:
    """With another load of the model, and another model of its family, loaded and unloaded again, it answers as before.

    Models of one family must not share what one of them changes.
    """
    model.again().adapter.unload()
    for task in model.tasks():
        before = deepcopy(answer_alone(model.adapter, items, task))
        for load in model.others:
            other = load()
            if task.operation in other.adapter.facts.operations:
                answer_shared(other.adapter, items, other.task(task.operation))
            _unmoved(model, before, answer_alone(model.adapter, items, task), "beside another model of its family")
            other.adapter.unload()
            try:
                after = answer_alone(model.adapter, items, task)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise AssertionError(f"with another model of its family unloaded, it fails ({told})") from error
            _unmoved(model, before, after, "with another model of its family unloaded")


def _unmoved(model: LoadedModel, before: list[ItemOutput], after: list[ItemOutput], when: str) -> None:
    far = max(map(distance, before, after))
    assert far <= tolerance(model.adapter), f"{when}, it answers otherwise, {far:.1e} off"


def precision_and_memory_are_told_truly(model: LoadedModel, items: Items) -> None:
    """The precision is a known one and that asked for, or a note says why; memory is not beyond the weights' files."""
    facts = model.adapter.facts
    known = ", ".join(PRECISIONS)
    assert facts.precision in PRECISIONS, f"facts.precision is {facts.precision!r}; there are {known}"
    lowered = facts.precision != model.precision
    assert not lowered or facts.notes.get("precision"), (
        f"{model.precision} was asked for and facts.precision is {facts.precision}: say why in facts.notes['precision']"
    )
    held = facts.memory_bytes
    assert isinstance(held, int), f"facts.memory_bytes is {held!r}, no int"
    assert held >= 0, f"facts.memory_bytes is {held}"
    most = LARGEST_SHARE * model.weight_bytes + SMALL_BYTES
    told = not model.weight_bytes or held <= most
    assert told, f"facts.memory_bytes is {held}, and the files of its weights hold {model.weight_bytes}"


def nothing_is_printed(model: LoadedModel, items: Items) -> None:
    """A load and an answer write nothing to stdout, which belongs to the command; tell the log instead."""
    with _stdout() as printed:
        loaded = model.again()
        for task in loaded.tasks():
            answer_shared(loaded.adapter, items, task)
        loaded.adapter.unload()
    assert not printed, f"it prints {printed[0][:80]!r}"


@contextmanager
def _stdout() -> Iterator[list[str]]:
    """Collect what Python and C libraries write to stdout until the block ends."""
    found: list[str] = []
    text = io.StringIO()
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        kept = os.dup(1)
        try:
            os.dup2(file.fileno(), 1)
            with redirect_stdout(text):
                yield found
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        found += [written for written in (text.getvalue(), file.read().decode(errors="replace")) if written]


def nothing_is_left_after_unload(model: LoadedModel, items: Items) -> None:
    """After `unload` and the last reference the adapter is gone, and so are the threads that its load started."""
    _answer_once(model, items)
    before = set(threading.enumerate())
    gone = _answer_once(model, items)
    for _ in range(3):
        gc.collect()
    assert gone() is None, "the adapter outlives its last reference: a list, a cache or a thread still holds it"
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(1.0)
    names = [thread.name for thread in left if thread.is_alive()]
    assert not names, f"after unload the threads {names} still run: stop them in `unload`"


def _answer_once(model: LoadedModel, items: Items) -> weakref.ref[object]:
    """Load, answer and unload the model; return a weak reference to its adapter."""
    loaded = model.again()
    for task in loaded.tasks():
        answer_shared(loaded.adapter, items, task)
    loaded.adapter.unload()
    return weakref.ref(loaded.adapter)


def ten_loads_take_no_more_than_one(model: LoadedModel, items: Items) -> None:
    """The process does not grow from load to load: what a load takes, `unload` gives back."""
    process, sizes, started = psutil.Process(), [], time.monotonic()
    for _ in range(LOADS):
        _answer_once(model, items)
        gc.collect()
        sizes.append(process.memory_info().rss)
        if time.monotonic() - started > LOADS_S:
            break
    late = sizes[len(sizes) // 3 :]
    if len(late) < 3:
        raise Skipped(f"{len(sizes)} loads took {LOADS_S:.0f} s")
    steps = sorted(after - before for before, after in pairwise(late))
    growth = steps[len(steps) // 2]
    assert growth < LEAK_BYTES, f"the process grows by {growth} bytes a load: sizes after each were {sizes}"


def it_unloads_and_loads_again(model: LoadedModel, items: Items) -> None:
    """After `unload`, the model loads once more and is the same."""
    facts = model.adapter.facts
    model.adapter.unload()
    try:
        again = model.again()
    except Skipped:
        raise
    except Exception as error:
        raise AssertionError(f"the second load fails: {type(error).__name__}: {error}") from error
    same = again.adapter.facts.operations == facts.operations and again.adapter.facts.dims == facts.dims
    again.adapter.unload()
    assert same, "the second load has other facts than the first"
