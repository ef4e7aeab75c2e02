"""Runs one model in a separate engine, then its references, and compares."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, get_args

from sie_core.cache import WeightChain, hold_weights
from sie_core.catalog import Catalog, read_card, resolve_options
from sie_core.catalog.fetching import hold_companions
from sie_core.catalog.options.outputs import PREFERENCE
from sie_core.contracts import (
    Compared,
    Device,
    LoadContext,
    ModelInfo,
    NoReferenceError,
    Operation,
    OutputType,
    ResolvedModel,
)
from sie_core.cpu_budget import compute_threads, cpu_budget
from sie_core.engine import Engine, build_engine
from sie_core.plugins import PluginSet
from sie_core.postprocess.converters import turned_on
from sie_core.settings import Settings
from sie_core.verification.asking import Answers, ask
from sie_core.verification.differences import difference
from sie_core.verification.questions import questions
from sie_core.verification.referring import References
from sie_core.verification.report import Report, Row, Unverified

TOLERANCES: Mapping[str, float] = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 1e-2}
"""The tolerance by the engine's precision; references compute in float32."""


@dataclass(frozen=True, slots=True)
class Served:
    """The engine's description of the model, and its answers to each question."""

    info: ModelInfo
    device: Device
    # asyncio.run takes the repr of the task it ran: spelling the arrays out took longer than a small model's answers.
    answers: tuple[Answers, ...] = field(repr=False)


def verify_model(
    settings: Settings, plugins: PluginSet, catalog: Catalog, weights: WeightChain, model: str, precision: str
) -> Report:
    """Compare the engine's answers for a model with those of its references.

    Args:
        settings: The settings in force, among them the device.
        plugins: The registrations of the plugins.
        catalog: Catalog of the model.
        weights: Source of its weights.
        model: Its id.
        precision: The engine's precision, in place of the config's.

    Raises:
        InferenceError: The model does not exist, or cannot be loaded.
        ModelLoadError: Its weights cannot be had.
        PluginError: The engine cannot be built with these settings.
    """
    found = catalog.resolve(model)
    resolved = replace(found, profile=replace(found.profile, compute_precision=precision))
    made = {each.target: each.name for each in turned_on(plugins.postprocessors.values(), resolved.profile)}
    served = run_engine(settings, plugins, resolved, weights, made)
    return compare(served, find_references(plugins, resolved, served.info, weights), made)


def run_engine(
    settings: Settings, plugins: PluginSet, resolved: ResolvedModel, weights: WeightChain, made: Collection[OutputType]
) -> Served:
    """Ask an engine that serves only this model; it is closed afterwards.

    Args:
        settings: Those in force, less the models to preload.
        plugins: What the plugins registered.
        resolved: The model.
        weights: Source of its weights.
        made: Derived outputs, which no library gives.
    """
    alone = Catalog(1, MappingProxyType({resolved.id: resolved}))
    engine = build_engine(settings.model_copy(update={"preload_models": ()}), plugins, alone, weights)
    return asyncio.run(_run(engine, resolved.id, made))


async def _run(engine: Engine, model: str, made: Collection[OutputType]) -> Served:
    await engine.start()
    try:
        return await ask_engine(engine, model, made)
    finally:
        await engine.close()


async def ask_engine(engine: Engine, model: str, made: Collection[OutputType]) -> Served:
    """Load a model in a running engine, and ask it every question.

    Args:
        engine: An engine of this event loop.
        model: The model's id in its catalog.
        made: Derived outputs, which no library gives.
    """
    await engine.load(model)
    info = engine.model(model)
    asked = questions(info, made, _scored_by(info, made))
    return Served(info, engine.device, tuple([await ask(engine.infer, model, question) for question in asked]))


def _scored_by(info: ModelInfo, made: Collection[OutputType]) -> OutputType | None:
    """Name the vectors by which the engine scores; None if the model has scores of its own, gives none, or scores by a
    derived output.
    """
    if "score" in info.outputs or "score" not in info.operations:
        return None
    by = next((name for name in PREFERENCE if name in info.outputs), None)
    return None if by in made else by


def find_references(plugins: PluginSet, resolved: ResolvedModel, info: ModelInfo, weights: WeightChain) -> References:
    """Find the references of a model; each is loaded at its first use.

    Raises:
        ModelLoadError: The weights cannot be had.
    """
    held = hold_weights(resolved.config, weights)
    folder = None if held is None else held.folder
    card = None if folder is None else read_card(folder)
    if held is not None and card is not None:
        hold_companions(held, card, resolved, plugins.families[str(info.adapter)], weights)
    context = LoadContext(
        model=resolved,
        device=Device("cpu"),
        precision="float32",
        weights=folder,
        card=None if card is None else plugins.informed(card),
        tokenizers={} if held is None else held.tokenizer_folders,
        threads=compute_threads(cpu_budget()),
        runners=plugins.runners,
    )
    registered = [each for each in plugins.references if info.adapter in each.families]
    options = {operation: _options(plugins, resolved, info, operation) for operation in get_args(Operation)}
    return References(registered, context, info, options)


def _options(plugins: PluginSet, resolved: ResolvedModel, info: ModelInfo, operation: Operation) -> dict[str, Any]:
    """Resolve the profile's options for an operation, as the engine does."""
    family = plugins.families[str(info.adapter)]
    said = resolve_options(family, resolved, {}, operation, postprocessors=plugins.postprocessors)
    engine = {name: getattr(said, name) for name in ("input_type", "instruction", "truncate", "dimensions")}
    return {"options": said.family, **engine}


def compare(served: Served, references: References, made: Mapping[OutputType, str]) -> Report:
    """Compare the engine's answers with those of the references.

    Args:
        served: The engine's answers.
        references: The references to compare with.
        made: Derived outputs, and the postprocessor of each.
    """
    info = served.info
    rows: list[Row] = []
    unverified = [Unverified(output, f"{by} makes it of other outputs") for output, by in made.items()]
    for answers in served.answers:
        for kind in _kinds(answers, references):
            try:
                rows.append(_row(answers, kind, references, info.precision or "float32"))
            except NoReferenceError as error:
                unverified.append(Unverified(kind, str(error)))
    return Report(
        model=info.id,
        family=str(info.adapter),
        device=str(served.device),
        precision=info.precision or "float32",
        notes=info.notes,
        rows=tuple(rows),
        unverified=tuple(dict.fromkeys(unverified)),
    )


def _kinds(answers: Answers, references: References) -> Sequence[Compared]:
    """List what to compare for a question: of the extractable outputs, those that were extracted or that a reference
    looks for.
    """
    kinds = answers.question.kinds
    if answers.question.operation != "extract":
        return kinds
    found = [kind for kind in kinds if any(getattr(output, kind) for output in (*answers.together, *answers.alone))]
    return [kind for kind in kinds if kind in found or references.computes(kind)] or kinds[:1]


def _row(answers: Answers, kind: Compared, references: References, precision: str) -> Row:
    question, tolerance = answers.question, TOLERANCES[precision]
    row = Row(kind, question.said, "–", len(question.items), inf, tolerance, answers.refusal or "")
    if answers.refusal is not None:
        return row
    name, expected = references.answer(question, kind)
    found = [difference(kind, given, expected) for given in (answers.together, answers.alone)]
    if not any(each.numbers or each.note for each in found):
        raise NoReferenceError("neither the engine nor the reference found any in the texts")
    worst = max(found, key=lambda each: each.deviation)
    return replace(row, reference=name, deviation=worst.deviation, note=worst.note)
