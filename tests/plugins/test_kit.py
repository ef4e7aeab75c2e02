"""The author's kit passes what is right and fails each kind of fault, with the reason."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sie_fake.adapter import FakeAdapter

from sie_core import testing as kit
from sie_core.batching import FairScheduler
from sie_core.contracts import (
    Batch,
    Device,
    DeviceMemory,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelConfig,
    ModelFacts,
    OutputDtype,
    PluginError,
    Postprocessor,
    Profile,
    ResolvedModel,
)
from sie_core.plugins import discover
from sie_core.settings import Settings
from sie_core.testing import LoadedModel, checks_of, conformance, scheduler_checks
from sie_core.testing.adapter_checks import ADAPTER_CHECKS
from sie_core.testing.loading import fitting, samples
from sie_core.testing.part_checks import DTYPE_CHECKS, POSTPROCESSOR_CHECKS, PROBE_CHECKS
from sie_core.testing.scheduler_checks import SCHEDULER_CHECKS

test_sie_fake_conforms = conformance("sie-fake")
test_sie_core_conforms = conformance("sie-core")
test_the_emulated_accelerator_conforms = conformance("sie-fake", models=["sie-fake/embedder"], device="fake")


ENCODES = {"encode": {"dense": {"dim": 8}}}
READS = {"score": {}, "extract": {"labels": "required"}}
NAMES = [Item(text="here person=Ada lives"), Item(text="place=Rome and person=Bo in a model")]


class ForgetsAnItem(FakeAdapter):
    def prepare(self, items, task):
        return super().prepare(items[:-1], task)


class CostsNothing(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        units[0].cost = 0
        return units


class SeesItsNeighbours(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.dense is not None:
                output.dense = output.dense + np.float32(len(units) * 1e-3)
                output.normalized = False
        return outputs


class ReusesItsBuffer(FakeAdapter):
    buffer = np.zeros(8, dtype=np.float32)

    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            self.buffer[:] = output.dense
            output.dense = self.buffer
        return outputs


class GivesDoubles(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            output.dense = output.dense.astype(np.float64)
        return outputs


class ClaimsUnitLength(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            output.dense *= np.float32(2)
        return outputs


class TellsWrongFacts(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            output.dense = output.dense[:5]
        return outputs


class KeysEverything(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        for unit in units:
            unit.key = (unit.key, tuple(task.options.items()))
        return units


class KeysNothing(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        for unit in units:
            unit.key = None
        return units


class RaisesItsLibrarysError(FakeAdapter):
    def prepare(self, items, task):
        try:
            return list(super().prepare(items, task))
        except InvalidInput as error:
            raise KeyError("text") from error


class CutsInSilence(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        for unit in units:
            unit.truncated = None
        return units


class MisplacesEntities(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            output.entities = tuple(replace(entity, start=entity.start + 1) for entity in output.entities or ())
        return outputs


class KeysLabels(FakeAdapter):
    def prepare(self, items, task):
        units = list(super().prepare(items, task))
        for unit in units:
            unit.key = (unit.key, task.labels)
        return units


class ScoresByCompany(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.score is not None:
                output.score += len(units) / 100
        return outputs


class FindsMoreInCompany(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        for output in outputs:
            if output.entities and len(units) > 1:
                output.entities = output.entities[:-1]
        return outputs


class ExtractsNothing(FakeAdapter):
    def finish(self, units, raw):
        outputs = super().finish(units, raw)
        return [ItemOutput() if unit.payload.task.operation == "extract" else output
                for unit, output in zip(units, outputs, strict=True)]  # fmt: skip


class CountsRequests(FakeAdapter):
    calls = 0

    def prepare(self, items, task):
        type(self).calls += 1
        units = list(super().prepare(items, task))
        for unit in units:
            unit.tokens += self.calls
        return units


@pytest.mark.parametrize(
    ("adapter", "check"),
    [
        (ForgetsAnItem, "every_item_gives_units"),
        (CostsNothing, "every_item_gives_units"),
        (SeesItsNeighbours, "a_row_of_a_batch_is_the_batch_of_one"),
        (ReusesItsBuffer, "the_same_input_gives_the_same_output"),
        (GivesDoubles, "outputs_are_what_was_asked"),
        (ClaimsUnitLength, "outputs_are_what_was_asked"),
        (TellsWrongFacts, "facts_are_truthful"),
        (KeysEverything, "only_run_options_keep_requests_apart"),
        (KeysNothing, "only_run_options_keep_requests_apart"),
        (RaisesItsLibrarysError, "refusals_are_typed"),
        (CutsInSilence, "long_texts_are_cut_and_say_so"),
        (CountsRequests, "prepare_may_run_on_several_threads"),
    ],
)
def test_a_faulty_adapter_fails_the_check_that_is_for_it(adapter, check):
    with pytest.raises(AssertionError) as failed:
        run_check(check, loaded(adapter))
    assert str(failed.value)


@pytest.mark.parametrize(
    ("adapter", "check"),
    [
        (MisplacesEntities, "outputs_are_what_was_asked"),
        (ExtractsNothing, "outputs_are_what_was_asked"),
        (KeysLabels, "only_run_options_keep_requests_apart"),
        (ScoresByCompany, "a_row_of_a_batch_is_the_batch_of_one"),
        (FindsMoreInCompany, "a_row_of_a_batch_is_the_batch_of_one"),
        (CutsInSilence, "long_texts_are_cut_and_say_so"),
        (CountsRequests, "prepare_may_run_on_several_threads"),
    ],
)
def test_a_fault_of_score_or_extract_fails_the_check_that_is_for_it(adapter, check):
    with pytest.raises(AssertionError) as failed:
        run_check(check, loaded(adapter, READS), NAMES)
    assert str(failed.value)


class RemembersItsLastLora(FakeAdapter):
    last = None

    def _output(self, row, lora):
        self.last = lora or self.last
        return super()._output(row, self.last)


class IgnoresLoras(FakeAdapter):
    def _output(self, row, lora):
        return super()._output(row, None)


class MergesLoras(FakeAdapter):
    merged = None

    def load_lora(self, name, folder):
        self.merged = super().load_lora(name, folder)
        return self.merged

    def _output(self, row, lora):
        return super()._output(row, lora or self.merged)


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (RemembersItsLastLora, "encode of the base model moves by .* beside other LoRA adapters"),
        (MergesLoras, "encode of the base model moves by .* beside other LoRA adapters"),
        (IgnoresLoras, "the LoRA adapter legal changes no encode output: it is not applied"),
    ],
)
def test_an_adapter_that_mixes_up_loras_fails(adapter, told, tmp_path):
    model = replace(loaded(adapter, takes_lora=True), loras={"legal": tmp_path, "medical": tmp_path})
    with pytest.raises(AssertionError, match=told):
        run_check("a_lora_adapter_changes_its_own_rows_alone", model)


def test_rows_with_and_without_loras_are_each_what_they_are_alone(tmp_path):
    model = replace(loaded(FakeAdapter, takes_lora=True), loras={"legal": tmp_path, "medical": tmp_path})
    run_check("a_lora_adapter_changes_its_own_rows_alone", model)


@pytest.mark.parametrize("tasks", [ENCODES, READS], ids=["encodes", "reads"])
@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda check: check.__name__)
def test_an_honest_adapter_passes(check, tasks):
    check(loaded(FakeAdapter, tasks), [*samples(), *NAMES])


def test_images_are_asked_of_a_model_that_sees_and_texts_of_one_that_reads():
    both, image = ModelFacts(inputs=("text", "image")), ModelFacts(inputs=("image",))
    assert [bool(item.images) for item in fitting(NAMES, both)] == [False, False, True, True]
    assert all(item.images and item.text is None for item in fitting(NAMES, image))


def loaded(adapter: type[FakeAdapter], tasks: Mapping[str, Any] = ENCODES, **loadtime: Any) -> LoadedModel:
    config = ModelConfig("test/kit", weightless=True, tasks=tasks, max_sequence_length=64)
    resolved = ResolvedModel("test/kit", config, Profile("default", "fake", loadtime=loadtime))
    family = discover(Settings(plugins=("fake",))).families["fake"]
    return LoadedModel(adapter(LoadContext(resolved, Device("cpu"), "float32")), family, resolved)


def run_check(name: str, model: LoadedModel, items: Sequence[Item] | None = None) -> None:
    (check,) = [check for check in ADAPTER_CHECKS if check.__name__ == name]
    check(model, items or samples())


class IgnoresCost(FairScheduler):
    def add_model(self, model, limits):
        super().add_model(model, replace(limits, max_cost=10**9))


class IgnoresRequests(FairScheduler):
    def add_model(self, model, limits):
        super().add_model(model, replace(limits, max_requests=10**9, max_cost=64))


class DearestFirst(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        batch = super().next(now, ahead=ahead, within=within)
        return batch and replace(batch, units=batch.units[::-1])


class RunsTheCancelled(FairScheduler):
    def cancel(self, request):
        return 0


class ForgetsDeadlines(FairScheduler):
    def late(self, now):
        return []


class WaitsWhileIdle(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        return super().next(now, ahead=True)


class LastComeFirstServed:
    """Serves the newest unit first, so an old one may wait for ever."""

    version = 1

    def __init__(self, limits):
        self.units = []

    def add_model(self, model, limits):
        pass

    def add(self, request, units, now):
        self.units += units

    def next(self, now, *, ahead=False, within=None):
        unit = self.units.pop()
        return Batch(unit.request.model, (unit,), unit.unit.cost)

    def ran(self, batch, seconds, now):
        pass

    def waiting(self, model):
        return sum(each.request.model is model for each in self.units), 0


class SharesItsQueue(FairScheduler):
    """Schedulers of one factory that are one queue, as a class attribute makes it."""

    made: list[FairScheduler] = []  # noqa: RUF012 - the fault

    def __new__(cls, limits):
        cls.made = cls.made or [super().__new__(cls)]
        return cls.made[0]

    def __init__(self, limits):
        if not hasattr(self, "_models"):
            super().__init__(limits)

    def add_model(self, model, limits):
        if model not in self._models:
            super().add_model(model, limits)


class MultipliesUnits(FairScheduler):
    """Counts what is not there, so that a loop over its queue never ends."""

    def waiting(self, model):
        units, cost = super().waiting(model)
        return (10**9 - units if units else 0), cost


class Hangs(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        threading.Event().wait()


@pytest.mark.parametrize("faulty", [SharesItsQueue, MultipliesUnits, Hangs])
def test_a_scheduler_that_grows_or_hangs_fails_its_checks_in_bounded_time(faulty, monkeypatch):
    monkeypatch.setattr(scheduler_checks, "CHECK_LIMIT_S", 0.2 if faulty is Hangs else 60)
    failed = 0
    for check in SCHEDULER_CHECKS:
        try:
            check(faulty)
        except AssertionError:
            failed += 1
    assert failed


@pytest.mark.parametrize(
    ("faulty", "check"),
    [
        (IgnoresCost, "every_unit_runs_once_and_within_the_limits"),
        (IgnoresRequests, "every_unit_runs_once_and_within_the_limits"),
        (DearestFirst, "every_unit_runs_once_and_within_the_limits"),
        (RunsTheCancelled, "cancelled_units_never_run"),
        (ForgetsDeadlines, "late_requests_never_run"),
        (WaitsWhileIdle, "an_idle_device_never_waits"),
        (LastComeFirstServed, "nothing_starves"),
    ],
)
def test_a_faulty_scheduler_fails_the_check_that_is_for_it(faulty, check):
    (found,) = [each for each in SCHEDULER_CHECKS if each.__name__ == check]
    with pytest.raises(AssertionError) as failed:
        found(faulty)
    assert str(failed.value)


def test_a_dtype_that_looks_at_other_rows_fails():
    check, _ = DTYPE_CHECKS
    with pytest.raises(AssertionError, match="cast otherwise in company"):
        check(OutputDtype("t", "t", lambda rows: rows / np.abs(rows).max()))


class Doubled:
    """A sound converter; a test breaks it."""

    def __init__(self, config, dims):
        self.dims = dims
        self.calls = 0

    def convert(self, output, input_type):
        return ItemOutput(multivector=np.stack([output.dense, output.dense]))


class OfAnotherSize(Doubled):
    def convert(self, output, input_type):
        return ItemOutput(multivector=output.dense[None, :-1])


class OfAnotherPrecision(Doubled):
    def convert(self, output, input_type):
        return ItemOutput(multivector=output.dense[None].astype(np.float64))


class MakesNothing(Doubled):
    def convert(self, output, input_type):
        return output


class Changing(Doubled):
    def convert(self, output, input_type):
        self.calls += 1
        return ItemOutput(multivector=output.dense[None] * np.float32(self.calls))


class DividesByZero(Doubled):
    def convert(self, output, input_type):
        with np.errstate(divide="ignore"):
            return ItemOutput(multivector=output.dense[None] / np.float32(0))


class InPlace(Doubled):
    def convert(self, output, input_type):
        output.dense *= 2
        return super().convert(output, input_type)


@pytest.mark.parametrize(
    ("converter", "told"),
    [
        (OfAnotherSize, "has 31 dimensions, and dims says 32"),
        (OfAnotherPrecision, "is float64, not float32"),
        (MakesNothing, "fills no multivector output"),
        (Changing, "made into different ones"),
        (DividesByZero, "holds NaN or infinity"),
        (InPlace, "changed the dense output it was given"),
    ],
)
def test_a_faulty_postprocessor_fails_the_check_that_is_for_it(converter, told):
    check_postprocessor(Doubled)
    with pytest.raises(AssertionError, match=told):
        check_postprocessor(converter)


def check_postprocessor(converter: type[Doubled]) -> None:
    for check in POSTPROCESSOR_CHECKS:
        check(Postprocessor("t", "dense", "multivector", create=converter))


def test_a_probe_that_uses_more_than_there_is_fails():
    class Probe:
        kind, priority = "t", 0

        def devices(self):
            return [Device("t")]

        def memory(self, device):
            return DeviceMemory(used=2, total=1)

    devices, memory = PROBE_CHECKS
    devices(Probe())
    with pytest.raises(AssertionError, match="uses 2 of 1 bytes"):
        memory(Probe())


def test_the_kit_lists_every_part_of_a_distribution():
    names = [str(check) for check in checks_of("sie-fake")]

    assert "family fake: its `load` can be imported" in names
    assert "device probe fake: memory adds up" in names
    for model in (
        "sie-fake/dense",
        "sie-fake/embedder",
        "sie-fake/embedder:faulty",
        "sie-fake/embedder:slow",
        "sie-fake/embedder:tuned",
    ):
        assert f"model {model}: a row of a batch is the batch of one" in names
    assert len(names) == len(set(names))


def test_a_distribution_without_a_plugin_is_named_with_those_that_have_one():
    with pytest.raises(PluginError, match=r"'sie-fakee' is installed; there are those of .*sie-fake"):
        checks_of("sie-fakee")


def test_every_name_of_the_kit_is_what_it_says_even_once_its_module_is_loaded():
    for name in kit.__all__:
        getattr(kit, name)
    for name in kit.__all__:
        assert callable(getattr(kit, name))
        assert getattr(kit, name).__name__ == name


FAMILY_ALONE = """
from sie_core.contracts import ModelFamily
from sie_core.hookspecs import hookimpl
CONTRACT_VERSION = 1
@hookimpl
def sie_model_families():
    return [ModelFamily("t-alone", "sie_fake.adapter:load", lambda card: None, weightless=True)]
"""
CONFIG = """
sie_id: test/alone
package_backed: true
tasks: { encode: { dense: { dim: 4 } } }
profiles: { default: { adapter_path: t-alone } }
"""


@pytest.fixture
def a_family_without_models(tmp_path, monkeypatch):
    """A distribution whose family has no model on this machine."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "t_alone.py").write_text(FAMILY_ALONE)
    info = tmp_path / "t_alone-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: t-alone\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sie]\nt-alone = t_alone\n")
    yield "t-alone"
    sys.modules.pop("t_alone", None)


def test_a_kit_that_checked_no_model_fails_and_says_how_to_name_one(a_family_without_models):
    (check,) = [each for each in checks_of(a_family_without_models) if each.name == "a model is checked"]

    with pytest.raises(AssertionError, match="none of their models was checked") as failed:
        check.run()
    assert 'conformance("t-alone", models=["org/name"])' in str(failed.value)
    assert 'conformance("t-alone", models_dir=Path("models"))' in str(failed.value)


def test_a_folder_of_models_is_checked_with_the_distribution(a_family_without_models, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "alone.yaml").write_text(CONFIG)

    names = [str(check) for check in checks_of(a_family_without_models, models_dir=tmp_path / "models")]

    assert "model test/alone: a row of a batch is the batch of one" in names
    assert not any("a model is checked" in name for name in names)
