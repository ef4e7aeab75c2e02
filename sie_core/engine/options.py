"""Resolves what a request asks of a loaded model into a `Task` and an output dtype. It runs nothing.

What the client said wins over the profile's `runtime`, which wins over the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from sie_core.catalog import EffectiveOptions, resolve_options
from sie_core.contracts import (
    InferenceRequest,
    InvalidInput,
    Item,
    ModelFacts,
    Operation,
    OutputDtype,
    OutputType,
    Task,
)
from sie_core.engine.loaded import LoadedModel

DEFAULT_DTYPE = "float32"
DEFAULT_OUTPUT: OutputType = "dense"
OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)
OPERATIONS: tuple[Operation, ...] = ("encode",)
"""The operations whose outputs the engine can encode."""


def resolve_task(
    request: InferenceRequest, model: LoadedModel, dtypes: Mapping[str, OutputDtype]
) -> tuple[Task, OutputDtype]:
    """Check a request against the model it names.

    Raises:
        InvalidInput: Names the field in `param`, the value, and what the model has.
    """
    facts = model.facts
    served = [name for name in OPERATIONS if name in facts.operations]
    if request.operation not in served:
        raise _invalid(model, "operation", f"serves {_listed(served)}, not {request.operation}")
    _check_inputs(request.items, model)
    options = resolve_options(model.family, model.resolved, request.options)
    outputs = _output_types(request, options, model)
    task = Task(
        operation=request.operation,
        output_types=outputs,
        input_type=request.input_type or options.input_type,
        instruction=request.instruction if request.instruction is not None else options.instruction,
        truncate=request.truncate or options.truncate,
        dimensions=_dimensions(request.dimensions or options.dimensions, outputs, model),
        labels=request.labels,
        output_schema=request.output_schema,
        query=request.query,
        options=options.family,
    )
    return task, _dtype(request.output_dtype or options.output_dtype or DEFAULT_DTYPE, dtypes)


def _output_types(request: InferenceRequest, options: EffectiveOptions, model: LoadedModel) -> tuple[OutputType, ...]:
    asked = options.output_types if "output_types" in request.options else request.output_types or options.output_types
    allowed = options.profile.output_types or model.facts.outputs
    have = [name for name in model.facts.outputs if name in allowed]
    if asked is None:
        asked = (DEFAULT_OUTPUT,) if DEFAULT_OUTPUT in have else tuple(have[:1])
    if wrong := [name for name in asked if name not in have]:
        raise _invalid(model, "output_types", f"gives {_listed(have)}, not {_listed(wrong)}")
    return tuple(name for name in OUTPUT_TYPES if name in asked)


def _dimensions(wanted: int | None, outputs: Sequence[OutputType], model: LoadedModel) -> int | None:
    if wanted is None:
        return None
    if "dense" not in outputs:
        raise _invalid(model, "dimensions", "shortens dense vectors only, and the request asks for none")
    allowed = {*model.facts.matryoshka_dims, *_native(model.facts)}
    if wanted not in allowed:
        raise _invalid(
            model, "dimensions", f"gives dense vectors of {_listed(sorted(allowed))} dimensions, not {wanted}"
        )
    return wanted


def _native(facts: ModelFacts) -> tuple[int, ...]:
    return (facts.dims["dense"],) if "dense" in facts.dims else ()


def _dtype(name: str, dtypes: Mapping[str, OutputDtype]) -> OutputDtype:
    if name not in dtypes:
        raise InvalidInput(f"output_dtype {name!r} is unknown; there are {_listed(dtypes)}.", param="output_dtype")
    return dtypes[name]


def _check_inputs(items: Sequence[Item], model: LoadedModel) -> None:
    refused = [
        (field, kind)
        for field, kind in (("images", "image"), ("audio", "audio"), ("video", "video"), ("document", "document"))
        if kind not in model.facts.inputs
    ]
    for number, item in enumerate(items):
        for field, kind in refused:
            if getattr(item, field):
                message = f"{model.id} takes {_listed(model.facts.inputs)}, no {kind}."
                raise InvalidInput(message, param=f"items[{number}].{field}")


def _invalid(model: LoadedModel, param: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{model.id} {problem}.", param=param)


def _listed(names: Mapping[str, object] | Sequence[object]) -> str:
    return ", ".join(str(name) for name in names) or "nothing"
