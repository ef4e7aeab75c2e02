"""Checks a request against a loaded model, and derives the adapter's `Task` and the plan of its outputs.

The client's values override the profile's `runtime`, which overrides the defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from sie_core.catalog import EffectiveOptions, resolve_options
from sie_core.catalog.info import served_operations
from sie_core.catalog.options.outputs import OutputChoice, listed
from sie_core.contracts import InferenceRequest, InvalidInput, Item, OutputDtype, Task
from sie_core.engine.models.asked import Asked
from sie_core.engine.models.loaded import LoadedModel
from sie_core.postprocess.converters import needed
from sie_core.postprocess.plan import OutputPlan

# The fields of an item, each with its name in `ModelFacts.inputs`.
MEDIA = (("text", "text"), ("images", "image"), ("audio", "audio"), ("video", "video"), ("document", "document"))
# Bounds the remembered plain requests of a model: dtypes and sizes are few, but clients may write any list of outputs.
_REMEMBERED: Final = 256


def resolve_task(
    request: InferenceRequest, model: LoadedModel, dtypes: Mapping[str, OutputDtype], every_option: Collection[str]
) -> Asked:
    """Check a request against the model it names.

    Args:
        request: The client's request.
        model: The model it names.
        dtypes: The values of `output_dtype`.
        every_option: The names of all families' options.

    Raises:
        InvalidInput: Names the field in `param`, the value, and the model's alternatives.
    """
    kind = _kind(request)
    asked = None if kind is None else model.plain.get(kind)
    if asked is not None:
        _check_items(request, model)
        return asked
    asked = _resolve(request, model, dtypes, every_option)
    if kind is not None and len(model.plain) < _REMEMBERED:
        model.plain[kind] = asked
    return asked


def _kind(request: InferenceRequest) -> Hashable:
    """Return what tells a plain request from others, which is equal where they ask the same; None for any other.

    A plain request says nothing but its items, and what there are few values of. Most are plain.
    """
    if request.options or request.wishes or request.demands or request.instruction is not None:
        return None
    if request.labels or request.output_schema is not None or request.query is not None:
        return None
    outputs = request.output_types, request.output_dtype, request.dimensions
    return request.operation, request.input_type, request.truncate, outputs


def _resolve(
    request: InferenceRequest, model: LoadedModel, dtypes: Mapping[str, OutputDtype], every_option: Collection[str]
) -> Asked:
    facts = model.facts
    served = served_operations(facts.operations)
    if request.operation not in served:
        raise _invalid(model, "model", f"serves {listed(served)}, not {request.operation}")
    _check_items(request, model)
    options = _options(request, model, every_option)
    choice = OutputChoice(request, options, model.id, facts, model.notes)
    outputs = choice.names()
    converters = needed(request, outputs, options, model.id, model.converters)
    dims = choice.dimensions(outputs, converters)
    task = Task(
        operation=request.operation,
        output_types=choice.of_adapter(outputs) if converters else outputs,
        input_type=request.input_type or options.input_type,
        instruction=request.instruction if request.instruction is not None else options.instruction,
        truncate=request.truncate or options.truncate,
        dimensions=None if "dense" in converters else dims,
        labels=_labels(request, model),
        output_schema=request.output_schema,
        query=request.query,
        options=options.family,
    )
    dtype = choice.dtype(dtypes)
    if options.lora is not None and not facts.takes_lora:
        why = model.notes.get("lora")
        problem = "takes no LoRA adapters; leave the option out"
        raise _invalid(model, "options.lora", f"{problem}. {why.removesuffix('.')}" if why else problem)
    ignored = (*options.ignored, *model.adapter.passed_over(task))
    return Asked(task, OutputPlan(dtype, outputs, converters), options.lora, ignored)


def _options(request: InferenceRequest, model: LoadedModel, every_option: Collection[str]) -> EffectiveOptions:
    facts = model.facts
    return resolve_options(
        model.family,
        model.resolved,
        request.options,
        request.operation,
        None if request.operation in facts.operations else "encode",
        model.converters.postprocessors,
        request.wishes,
        request.demands,
        elsewhere=every_option,
        takes_lora=facts.takes_lora,
    )


def _labels(request: InferenceRequest, model: LoadedModel) -> tuple[str, ...]:
    facts = model.facts
    if request.labels and facts.takes_labels == "no":
        raise _invalid(model, "labels", "looks for what its weights say and takes no labels; leave them out")
    if request.operation == "extract" and not request.labels and facts.takes_labels == "required":
        raise InvalidInput(
            f'labels is missing: tell {model.id} what to look for, e.g. ["person", "place"].', param="labels"
        )
    for place, label in enumerate(request.labels):
        if not label.strip():
            raise InvalidInput(f"labels[{place}] is blank; leave it out.", param=f"labels[{place}]")
    if request.output_schema is not None and not facts.takes_schema:
        raise _invalid(model, "output_schema", "takes no output_schema; leave it out")
    return tuple(dict.fromkeys(request.labels))


def _check_items(request: InferenceRequest, model: LoadedModel) -> None:
    refused = _refused(model.facts.inputs)
    for number, item in enumerate(request.items if refused else ()):
        _check_item(item, refused, f"items[{number}]", model)
    if request.operation == "score":
        _check_query(request.query, refused, model)


@lru_cache
def _refused(inputs: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(field, kind) for field, kind in MEDIA if kind not in inputs]


def _check_query(query: Item | None, refused: Sequence[tuple[str, str]], model: LoadedModel) -> None:
    if query is None:
        raise _invalid(model, "query", "needs a `query` to score the items against")
    _check_item(query, refused, "query", model)
    holds = (
        query.images or query.audio or query.video or query.document or query.token_ids or (query.text or "").strip()
    )
    if not holds:
        raise InvalidInput(f"query.text is blank, and {model.id} cannot score against nothing.", param="query.text")


def _check_item(item: Item, refused: Sequence[tuple[str, str]], where: str, model: LoadedModel) -> None:
    for field, kind in refused:
        if getattr(item, field):
            raise _invalid(model, f"{where}.{field}", f"takes {listed(model.facts.inputs)}, no {kind}")


def _invalid(model: LoadedModel, param: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{model.id} {problem}.", param=param)
