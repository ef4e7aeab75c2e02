"""Adapters, each broken in one way."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
import time
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sie_fake.adapter import FakeAdapter

from sie_core.contracts import InvalidInput, ItemOutput, ModelLoadError, Truncation
from tests.kit.faults.seeding import fault

READS = {"score": {}, "extract": {"labels": "required"}}
SPARSE = {"encode": {"dense": {"dim": 8}, "sparse": {"dim": 64}, "multivector": {"dim": 4}}}


class Changed(FakeAdapter):
    """A fake whose units and outputs a fault changes one by one."""

    def prepare(self, items, task):
        for unit in super().prepare(items, task):
            self.change(unit, items[unit.item], task)
            yield unit

    def change(self, unit, item, task):
        pass

    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for unit, output in zip(units, outputs, strict=True):
            self.spoil(output, unit)
        return outputs

    def spoil(self, output, unit):
        pass


# What the former kit found.


@fault("adapter", "every_item_gives_units")
class ForgetsAnItem(FakeAdapter):
    def prepare(self, items, task):
        return super().prepare(items[:-1], task)


@fault("adapter", "every_item_gives_units")
class CostsNothing(Changed):
    def change(self, unit, item, task):
        unit.cost = 0


@fault("adapter", "every_item_gives_units")
class KeysByList(Changed):
    def change(self, unit, item, task):
        unit.key = [unit.key]


@fault("adapter", "a_row_of_a_batch_is_the_batch_of_one")
class SeesItsNeighbours(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.dense is not None:
                output.dense = output.dense + np.float32(len(units) * 1e-3)
                output.normalized = False
        return outputs


@fault("adapter", "the_same_input_gives_the_same_output")
class ReusesItsBuffer(Changed):
    buffer = np.zeros(8, dtype=np.float32)

    def spoil(self, output, unit):
        self.buffer[:] = output.dense
        output.dense = self.buffer


@fault("adapter", "outputs_are_what_was_asked")
class GivesDoubles(Changed):
    def spoil(self, output, unit):
        output.dense = output.dense.astype(np.float64)


@fault("adapter", "outputs_are_what_was_asked")
class ClaimsUnitLength(Changed):
    def spoil(self, output, unit):
        output.dense *= np.float32(2)


@fault("adapter", "facts_are_truthful")
class TellsWrongDims(Changed):
    def spoil(self, output, unit):
        output.dense = output.dense[:5]


@fault("adapter", "only_run_options_keep_requests_apart")
class KeysEverything(Changed):
    def change(self, unit, item, task):
        unit.key = (unit.key, tuple(task.options.items()))


@fault("adapter", "only_run_options_keep_requests_apart")
class KeysNothing(Changed):
    def change(self, unit, item, task):
        unit.key = None


@fault("adapter", "refusals_are_typed")
class RaisesItsLibrarysError(FakeAdapter):
    def prepare(self, items, task):
        try:
            return list(super().prepare(items, task))
        except InvalidInput as error:
            raise KeyError("text") from error


@fault("adapter", "refusals_are_typed")
class NamesTheFirstItem(FakeAdapter):
    def prepare(self, items, task):
        try:
            return list(super().prepare(items, task))
        except InvalidInput as error:
            raise InvalidInput(error.message, param="items[0].text", code=error.code) from error


@fault("adapter", "long_texts_are_cut_and_say_so")
class CutsInSilence(Changed):
    def change(self, unit, item, task):
        unit.truncated = None


@fault("adapter", "prepare_may_run_on_several_threads")
class CountsRequests(Changed):
    calls: ClassVar[int] = 0

    def change(self, unit, item, task):
        type(self).calls += 1
        unit.tokens += self.calls


@fault("adapter", "outputs_are_what_was_asked", tasks=READS)
class MisplacesEntities(Changed):
    def spoil(self, output, unit):
        output.entities = tuple(replace(entity, start=entity.start + 1) for entity in output.entities or ())


@fault("adapter", "only_run_options_keep_requests_apart", tasks=READS)
class KeysLabels(Changed):
    def change(self, unit, item, task):
        unit.key = (unit.key, task.labels)


@fault("adapter", "a_row_of_a_batch_is_the_batch_of_one", tasks=READS)
class ScoresByCompany(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.score is not None:
                output.score += len(units) / 100
        return outputs


@fault("adapter", "a_row_of_a_batch_is_the_batch_of_one", tasks=READS)
class FindsMoreInCompany(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.entities and len(units) > 1:
                output.entities = output.entities[:-1]
        return outputs


@fault("adapter", "outputs_are_what_was_asked", tasks=READS)
class ExtractsNothing(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        pairs = zip(units, outputs, strict=True)
        return [ItemOutput() if unit.payload.task.operation == "extract" else output for unit, output in pairs]


# What it did not find.


@fault("adapter", "odd_texts_are_answered")
class FailsOnEmptyText(Changed):
    def change(self, unit, item, task):
        if item.text == "":
            raise IndexError("list index out of range")


@fault("adapter", "odd_texts_are_answered")
class FailsOnBlanks(Changed):
    def change(self, unit, item, task):
        if item.text and not item.text.split():
            raise ZeroDivisionError("division by zero")


@fault("adapter", "odd_texts_are_answered")
class FailsOnNul(Changed):
    def change(self, unit, item, task):
        if "\0" in (item.text or ""):
            raise ValueError("embedded null character")


@fault("adapter", "odd_texts_are_answered")
class GivesNanForNothing(Changed):
    def spoil(self, output, unit):
        if not unit.payload.words:
            output.dense = output.dense * np.float32(np.nan)


@fault("adapter", "odd_texts_are_answered")
class FailsOnLoneSurrogates(Changed):
    def change(self, unit, item, task):
        (item.text or "").encode("utf-16-le")


@fault("adapter", "many_units_run_together")
class HasAFixedBuffer(FakeAdapter):
    def run(self, units):
        if len(units) > 128:
            raise RuntimeError("the buffer holds 128 rows")
        return super().run(units)


@fault("adapter", "many_units_run_together")
class ForgetsRowsBeyondABuffer(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        return [output if place < 150 else outputs[0] for place, output in enumerate(outputs)]


@fault("adapter", "the_limit_itself_is_not_cut")
class CutsAtTheLimit(Changed):
    def change(self, unit, item, task):
        limit = self.facts.max_sequence_length
        if unit.tokens == limit:
            unit.truncated = Truncation(limit, limit - 1)


@fault("adapter", "the_limit_itself_is_not_cut")
class RefusesTheLimit(Changed):
    def change(self, unit, item, task):
        if unit.tokens == self.facts.max_sequence_length:
            raise InvalidInput("too long", param=f"items[{unit.item}].text", code="INPUT_TOO_LONG")


@fault("adapter", "a_cut_text_is_the_text_that_was_kept")
class CutsTheStartAlways(FakeAdapter):
    def prepare(self, items, task):
        return super().prepare(items, replace(task, truncate="start" if task.truncate == "end" else task.truncate))


@fault("adapter", "a_cut_text_is_the_text_that_was_kept")
class CutsTheEndAlways(FakeAdapter):
    def prepare(self, items, task):
        return super().prepare(items, replace(task, truncate="end" if task.truncate == "start" else task.truncate))


@fault("adapter", "a_cut_text_is_the_text_that_was_kept")
class CutsOneTooMany(Changed):
    def change(self, unit, item, task):
        if unit.truncated:
            row = unit.payload
            unit.payload = replace(row, text=" ".join(row.words[:-1]), words=row.words[:-1])


@fault("adapter", "a_cut_text_is_the_text_that_was_kept")
class SaysAWrongLength(Changed):
    def change(self, unit, item, task):
        if unit.truncated:
            unit.truncated = Truncation(unit.truncated.kept + 1, unit.truncated.kept)


@fault("adapter", "texts_of_equal_options_share_a_key")
class KeysByText(Changed):
    def change(self, unit, item, task):
        unit.key = (unit.key, item.text)


@fault("adapter", "texts_of_equal_options_share_a_key")
class KeysByLength(Changed):
    def change(self, unit, item, task):
        unit.key = (unit.key, unit.cost)


@fault("adapter", "the_same_units_run_twice")
class ConsumesItsUnits(FakeAdapter):
    def run(self, units):
        raw = super().run(units)
        for unit in units:
            unit.payload = replace(unit.payload, text="", words=())
        return raw


@fault("adapter", "the_same_units_run_twice")
class ClearsItsUnits(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for unit in units:
            unit.payload = None
        return outputs


@fault("adapter", "finish_may_run_on_several_threads")
class FinishesInAField(Changed):
    def finish(self, units, raw):
        self.now = raw
        time.sleep(0.001)
        return super().finish(units, self.now)


@fault("adapter", "prepare_may_run_on_several_threads")
class PreparesInAField(FakeAdapter):
    def prepare(self, items, task):
        self.items = list(items)
        time.sleep(0.001)
        return super().prepare(self.items, task)


@fault("adapter", "two_models_of_a_family_do_not_meet")
class SharesItsFacts(FakeAdapter):
    shared: ClassVar[list] = []

    def __init__(self, context):
        super().__init__(context)
        self.shared[:] = [self.facts.dims]

    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.dense is not None:
                output.dense = np.resize(output.dense, self.shared[0].get("dense", 8))
        return outputs


@fault("adapter", "two_models_of_a_family_do_not_meet")
class UnloadsEveryModel(FakeAdapter):
    closed: ClassVar[list] = []

    def __init__(self, context):
        super().__init__(context)
        self.closed.clear()

    def run(self, units):
        if self.closed:
            raise RuntimeError("the library was shut down")
        return super().run(units)

    def unload(self):
        super().unload()
        self.closed.append(True)


@fault("adapter", "the_limit_itself_is_not_cut")
class CountsOneTooMany(Changed):
    def change(self, unit, item, task):
        unit.tokens += 1


@fault("adapter", "tokens_are_those_of_tokenize")
class CountsCharacters(Changed):
    def change(self, unit, item, task):
        unit.tokens = len(item.text or "")


@fault("adapter", "tokens_are_those_of_tokenize")
class TokenizesBesides(FakeAdapter):
    def tokenize(self, texts, *, special, most=None):
        return [[replace(each, start=(each.start or 0) + 1) for each in text]
                for text in super().tokenize(texts, special=special, most=most)]  # fmt: skip


@fault("adapter", "tokens_are_those_of_tokenize")
class TokenizesAll(FakeAdapter):
    def tokenize(self, texts, *, special, most=None):
        return super().tokenize(texts, special=special)


KEPT: list[object] = []


@fault("adapter", "nothing_is_left_after_unload")
class IsKept(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        KEPT.append(self)


@fault("adapter", "nothing_is_left_after_unload")
class StartsAThread(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.stop = threading.Event()
        stop = self.stop
        threading.Thread(target=stop.wait, args=(60,), daemon=True, name="left").start()


@fault("adapter", "ten_loads_take_no_more_than_one")
class LeaksItsWeights(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        # Pages of its own: memory that this process has freed before would hide the growth.
        pages = mmap.mmap(-1, 4_000_000)
        pages.write(bytes(range(250)) * 16_000)
        KEPT.append(pages)


@fault("adapter", "precision_and_memory_are_told_truly")
class SpellsItsPrecision(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.facts = replace(self.facts, precision="fp32")


@fault("adapter", "precision_and_memory_are_told_truly")
class LowersItsPrecision(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.facts = replace(self.facts, precision="bfloat16")


@fault("adapter", "precision_and_memory_are_told_truly")
class TellsNegativeMemory(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.facts = replace(self.facts, memory_bytes=-1)


@fault("adapter", "nothing_is_printed")
class PrintsAtRun(FakeAdapter):
    def run(self, units):
        print("a batch of", len(units))
        return super().run(units)


@fault("adapter", "nothing_is_printed")
class PrintsAtLoad(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        print("ready")


@fault("adapter", "nothing_is_printed")
class WritesToStdout(FakeAdapter):
    def prepare(self, items, task):
        sys.stdout.write(".")
        return super().prepare(items, task)


@fault("adapter", "a_row_of_a_batch_is_the_batch_of_one")
class ReversesItsOutputs(FakeAdapter):
    def finish(self, units, raw):
        return super().finish(units, raw)[::-1]


@fault("adapter", "what_it_is_given_stays_as_it_is")
class TakesOptionsAway(FakeAdapter):
    def prepare(self, items, task):
        task.options.pop("scale", None)
        return super().prepare(items, task)


@fault("adapter", "what_it_is_given_stays_as_it_is")
class SortsTheItems(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        if isinstance(items, list):
            items.sort(key=lambda item: item.text or "")
        return units


@fault("adapter", "facts_are_truthful", tasks=SPARSE)
class IndexesBeyondItsVocabulary(Changed):
    def spoil(self, output, unit):
        if output.sparse is not None:
            output.sparse = replace(output.sparse, indices=output.sparse.indices + np.int32(64))


@fault("adapter", "outputs_are_what_was_asked", tasks=SPARSE)
class IndexesTwice(Changed):
    def spoil(self, output, unit):
        if output.sparse is not None:
            output.sparse = replace(output.sparse, indices=output.sparse.indices[::-1].copy())


@fault("adapter", "outputs_are_what_was_asked", tasks=SPARSE)
class GivesEverything(FakeAdapter):
    def prepare(self, items, task):
        return super().prepare(items, replace(task, output_types=self.facts.outputs) if task.output_types else task)


@fault("adapter", None)
class CostsTheSameForAll(Changed):
    """A family that pads every text to one length costs as much."""

    def change(self, unit, item, task):
        unit.cost = 1


@fault("adapter", "facts_are_truthful")
class ReadsStrangeInputs(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.facts = replace(self.facts, inputs=("text", "texts"))


@fault("adapter", "items_are_told_apart_by_what_they_hold")
class RemembersByName(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.seen = {}

    def prepare(self, items, task):
        for unit in super().prepare(items, task):
            unit.payload = self.seen.setdefault((items[unit.item].id, repr(task)), unit.payload)
            yield unit


@fault("adapter", "options_of_a_request_are_its_own")
class RemembersByText(FakeAdapter):
    def __init__(self, context):
        super().__init__(context)
        self.seen = {}

    def prepare(self, items, task):
        for unit in super().prepare(items, task):
            unit.payload = self.seen.setdefault((items[unit.item].text, task.operation), unit.payload)
            yield unit


@fault("adapter", "options_of_a_request_are_its_own")
class FinishesWithTheFirstOptions(FakeAdapter):
    def finish(self, units, raw):
        first = units[0].payload.task
        told = [replace(unit, payload=replace(unit.payload, task=first)) for unit in units]
        return super().finish(told, raw)


@fault("adapter", "labels_of_a_request_are_its_own", tasks=READS)
class ExtractsTheFirstLabels(FakeAdapter):
    def run(self, units):
        first = units[0].payload.task
        if first.operation != "extract":
            return super().run(units)
        return super().run([replace(unit, payload=replace(unit.payload, task=first)) for unit in units])


@fault("adapter", "labels_of_a_request_are_its_own", tasks=READS)
class IgnoresLabels(FakeAdapter):
    def prepare(self, items, task):
        labels = ("person", "place", "model") if task.labels else ()
        return super().prepare(items, replace(task, labels=labels))


@fault("adapter", "a_score_is_of_its_query", tasks=READS)
class IgnoresTheQuery(Changed):
    def spoil(self, output, unit):
        if output.score is not None:
            output.score = float(len(unit.payload.words))


@fault("adapter", "a_score_is_of_its_query", tasks=READS)
class KeepsTheFirstQuery(FakeAdapter):
    query = None

    def prepare(self, items, task):
        self.query = self.query or task.query
        return super().prepare(items, replace(task, query=self.query) if task.query else task)


@fault("adapter", "it_unloads_and_loads_again")
class LoadsOnce(FakeAdapter):
    loads: ClassVar[list] = []

    def __init__(self, context):
        super().__init__(context)
        if self.loads:
            raise ModelLoadError("UNKNOWN", "it was loaded before")
        self.loads.append(1)


@fault("adapter", "what_is_passed_over_is_a_field")
class PassesOverAnything(FakeAdapter):
    def passed_over(self, task):
        return ("prompt",)


@fault("adapter", "what_is_passed_over_is_a_field")
class PassesOverNothing(FakeAdapter):
    def passed_over(self, task):
        return None


@fault("adapter", "the_engine_serves_it", hangs=True)
class HoldsALock(FakeAdapter):
    """Holds a lock from one unit to the next, so that two requests of many units wait for each other."""

    def __init__(self, context):
        super().__init__(context)
        self.lock = threading.Lock()

    def prepare(self, items, task):
        with self.lock:
            for unit in super().prepare(items, task):
                yield unit
                time.sleep(0.002)


@fault("adapter", "the_engine_serves_it")
class BreaksWhenReloaded(FakeAdapter):
    loads: ClassVar[list] = []

    def __init__(self, context):
        super().__init__(context)
        self.loads.append(1)

    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.dense is not None and len(self.loads) > 2:
                output.dense = -output.dense
        return outputs


@fault("adapter", "the_engine_serves_it")
class BelongsToOneThread(FakeAdapter):
    """Runs on the thread that ran it first only."""

    thread = None

    def run(self, units):
        self.thread = self.thread or threading.get_ident()
        if threading.get_ident() != self.thread:
            raise RuntimeError("used from another thread")
        return super().run(units)

    def finish(self, units, raw):
        if threading.get_ident() != self.thread:
            raise RuntimeError("used from another thread")
        return super().finish(units, raw)


@fault("adapter", None)
class IsSlowNowAndThen(FakeAdapter):
    """Pauses for the garbage of every hundredth batch: a matter of speed, which the kit does not judge."""

    runs = 0

    def run(self, units):
        self.runs += 1
        if not self.runs % 100:
            gc.collect()
            time.sleep(0.2)
        return super().run(units)


@fault("adapter", None)
class TellsTooFewBytes(Changed):
    """States payloads of no bytes: what a payload takes is its family's to know."""

    def change(self, unit, item, task):
        unit.payload = replace(unit.payload, ballast=bytes(100))
        unit.nbytes = 0
