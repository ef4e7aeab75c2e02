"""Checks a request against a loaded model, and makes a `Task` for the adapter and the postprocessing of its outputs.

The client's values override the profile's `runtime`, which overrides the defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, get_args

from sie_core.catalog import EffectiveOptions, resolve_options
from sie_core.catalog.wording import short
from sie_core.contracts import (
    Converter,
    InferenceRequest,
    InvalidInput,
    Item,
    ModelFacts,
    OutputDtype,
    OutputType,
    Task,
)
from sie_core.engine.models.info import served_operations
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.output import Leaving
from sie_core.postprocess.converters import needed

DEFAULT_DTYPE = "float32"
DEFAULT_OUTPUT: OutputType = "dense"
OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)
# The vectors that `score` compares where the request names none: the first of these that the model gives.
PREFERENCE: tuple[OutputType, ...] = ("multivector", "dense", "sparse")
# The fields of an item, each with its name in `ModelFacts.inputs`.
MEDIA = (("text", "text"), ("images", "image"), ("audio", "audio"), ("video", "video"), ("document", "document"))


class Asked(NamedTuple):
    """What a request asks of a model."""

    # For the adapter; without its LoRA adapter, which is loaded afterwards.
    task: Task
    leaving: Leaving
    # The name of the LoRA adapter.
    lora: str | None
    # Options of the request that only other operations or families read.
    ignored: tuple[str, ...]


def resolve_task(
    request: InferenceRequest, model: LoadedModel, dtypes: Mapping[str, OutputDtype], every_option: Collection[str]
) -> Asked:
    """Check a request against the model it names.

    Args:
        request: What a client asks for.
        model: The model it names.
        dtypes: The values of `output_dtype`.
        every_option: The names of all families' options.

    Raises:
        InvalidInput: Names the field in `param`, the value, and what the model has.
    """
    facts = model.facts
    served = served_operations(facts.operations)
    if request.operation not in served:
        raise _invalid(model, "model", f"serves {_listed(served)}, not {request.operation}")
    _check_items(request, model)
    native = request.operation in facts.operations
    options = resolve_options(
        model.family,
        model.resolved,
        request.options,
        request.operation,
        None if native else "encode",
        model.converters.postprocessors,
        request.wishes,
        request.demands,
        elsewhere=every_option,
        takes_lora=facts.takes_lora,
    )
    outputs = _outputs(request, options, model, native)
    converters = needed(request, outputs, options, model.id, model.converters)
    dims = _dimensions(request, options, outputs, model, converters)
    task = Task(
        operation=request.operation,
        output_types=_of_adapter(outputs, options) if converters else outputs,
        input_type=request.input_type or options.input_type,
        instruction=request.instruction if request.instruction is not None else options.instruction,
        truncate=request.truncate or options.truncate,
        dimensions=None if "dense" in converters else dims,
        labels=_labels(request, model),
        output_schema=request.output_schema,
        query=request.query,
        options=options.family,
    )
    dtype = _dtype(request, options, dtypes)
    if options.lora is not None and not facts.takes_lora:
        raise _invalid(model, "options.lora", "takes no LoRA adapters; leave the option out")
    return Asked(task, Leaving(dtype, outputs, converters), options.lora, options.ignored)


def _outputs(
    request: InferenceRequest, options: EffectiveOptions, model: LoadedModel, native: bool
) -> tuple[OutputType, ...]:
    # Choose the outputs of `encode`, or the one output that `score` compares for a model without scores of its own.
    if request.operation == "encode":
        return _output_types(request, options, model)
    if not native:
        return (_compared(request, options, model),)
    if wrong := [name for name in ("output_types", "dimensions") if request.options.get(name) is not None]:
        raise _invalid(model, f"options.{wrong[0]}", f"has scores of its own: leave {_listed(wrong)} out")
    return ()


def _output_types(request: InferenceRequest, options: EffectiveOptions, model: LoadedModel) -> tuple[OutputType, ...]:
    by_option = request.options.get("output_types") is not None
    asked = options.output_types if by_option else request.output_types or options.output_types
    have = _allowed(options, model)
    if asked is None:
        asked = (DEFAULT_OUTPUT,) if DEFAULT_OUTPUT in have else tuple(have[:1])
    _require(asked, have, "options.output_types" if by_option else "output_types", model)
    return tuple(name for name in OUTPUT_TYPES if name in asked)


def _compared(request: InferenceRequest, options: EffectiveOptions, model: LoadedModel) -> OutputType:
    # Where a profile returns derived outputs only (MUVERA), scores compare the outputs they are derived from.
    have = _allowed(options, model) or list(model.facts.outputs)
    if request.options.get("output_types") is None or options.output_types is None:
        found = next((name for name in PREFERENCE if name in have), None)
        if found is None:
            raise _invalid(model, "model", "gives no vectors at this profile to compute a score of")
        return found
    _require(options.output_types, have, "options.output_types", model)
    if len(options.output_types) > 1:
        raise _invalid(model, "options.output_types", f"scores by one output at a time; name one of {_listed(have)}")
    return options.output_types[0]


def _allowed(options: EffectiveOptions, model: LoadedModel) -> list[OutputType]:
    have = {*model.facts.outputs, *(each.target for each in options.postprocessors)}
    return [name for name in OUTPUT_TYPES if name in have and name in (options.profile.output_types or have)]


def _of_adapter(outputs: Sequence[OutputType], options: EffectiveOptions) -> tuple[OutputType, ...]:
    # List the outputs to ask the adapter for: a derived output is replaced by its source.
    sources = {each.target: each.source for each in options.postprocessors}
    wanted = {sources.get(name, name) for name in outputs}
    return tuple(name for name in OUTPUT_TYPES if name in wanted)


def _require(asked: Sequence[OutputType], have: Sequence[OutputType], param: str, model: LoadedModel) -> None:
    if wrong := [name for name in asked if name not in have]:
        why = " ".join(f" {note}" for name in wrong if (note := model.notes.get(name)))
        raise _invalid(model, param, f"gives {_listed(have)}, not {_listed(wrong)}" + (f".{why}" if why else ""))


def _dimensions(
    request: InferenceRequest,
    options: EffectiveOptions,
    outputs: Sequence[OutputType],
    model: LoadedModel,
    converters: Mapping[OutputType, Converter],
) -> int | None:
    wanted = request.dimensions or options.dimensions
    said = request.dimensions or request.options.get("dimensions")
    if wanted is None or ("dense" not in outputs and said is None):
        return None  # the profile's size is that of dense vectors, and the request asks for other outputs
    param = "dimensions" if request.dimensions else "options.dimensions"
    if "dense" not in outputs:
        raise InvalidInput(
            f"{param} is {wanted}, and shortens dense vectors only: the request asks {model.id} for none.", param=param
        )
    made = converters.get("dense")
    allowed = {made.dims} if made else {*model.facts.matryoshka_dims, *_native(model.facts)}
    if wanted not in allowed:
        there = f"{model.id} gives dense vectors of {_listed(sorted(allowed))} dimensions"
        raise InvalidInput(f"{param} is {wanted}, and {there}.", param=param)
    return wanted


def _native(facts: ModelFacts) -> tuple[int, ...]:
    return (facts.dims["dense"],) if "dense" in facts.dims else ()


def _dtype(request: InferenceRequest, options: EffectiveOptions, dtypes: Mapping[str, OutputDtype]) -> OutputDtype:
    name = request.output_dtype or options.output_dtype or DEFAULT_DTYPE
    if name not in dtypes:
        param = "output_dtype" if request.output_dtype else "options.output_dtype"
        raise InvalidInput(f"{param} is {short(name)}; there are {_listed(dtypes)}.", param=param)
    return dtypes[name]


def _labels(request: InferenceRequest, model: LoadedModel) -> tuple[str, ...]:
    # Check the labels of `extract`; duplicates are removed.
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
    refused = [(field, kind) for field, kind in MEDIA if kind not in model.facts.inputs]
    for number, item in enumerate(request.items if refused else ()):
        _check_item(item, refused, f"items[{number}]", model)
    if request.operation == "score":
        _check_query(request.query, refused, model)


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
            raise _invalid(model, f"{where}.{field}", f"takes {_listed(model.facts.inputs)}, no {kind}")


def _invalid(model: LoadedModel, param: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{model.id} {problem}.", param=param)


def _listed(names: Mapping[str, object] | Sequence[object]) -> str:
    return ", ".join(str(name) for name in names) or "nothing"
