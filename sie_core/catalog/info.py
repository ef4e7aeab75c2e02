"""Describes a model for `/v1/models` by its adapter or its weights, or else by its config."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, get_args

from sie_core.catalog.configs.snapshot import DEFAULT_PROFILE
from sie_core.contracts import ModelFacts, ModelInfo, Operation, OutputType, Postprocessor, ResolvedModel
from sie_core.postprocess.converters import make_converter, turned_on

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def describe(
    resolved: ResolvedModel,
    facts: ModelFacts | None,
    postprocessors: Mapping[str, Postprocessor],
    *,
    available: bool,
) -> ModelInfo:
    """Describe a model that no process has loaded; an engine adds its state.

    Args:
        resolved: The model.
        facts: The adapter's facts or, before a load, the family's preview of them; None if only the config is known.
        postprocessors: Every registered one, by name.
        available: Whether its weights are on this machine, or it has none.
    """
    config = resolved.config
    declared = _declared_dims(config.tasks)
    vectors = {str(name): facts.dims.get(name) or declared.get(name) for name in facts.outputs} if facts else declared
    made = _made(resolved, vectors, postprocessors)
    dims = _allowed(resolved, {**vectors, **made})
    return ModelInfo(
        id=resolved.id,
        inputs=facts.inputs if facts else config.inputs,
        outputs=_outputs(dims, facts.operations if facts else config.tasks),
        dims={name: dim for name, dim in dims.items() if dim is not None},
        state="available",
        max_sequence_length=(facts and facts.max_sequence_length) or config.max_sequence_length,
        revision=config.hf_revision,
        profiles=tuple(config.profiles) if resolved.profile.name == DEFAULT_PROFILE else (DEFAULT_PROFILE,),
        adapter=resolved.profile.adapter_path,
        matryoshka_dims=() if "dense" in made else facts.matryoshka_dims if facts else _declared_sizes(config.tasks),
        operations=served_operations(facts.operations) if facts else declared_operations(resolved),
        classes=facts.classes if facts else (),
        loras=tuple(config.loras),
        accepts_token_ids=config.accept_token_ids,
        available=available,
    )


def _made(
    resolved: ResolvedModel, vectors: Mapping[str, int | None], postprocessors: Mapping[str, Postprocessor]
) -> dict[str, int | None]:
    # List the outputs that postprocessors of the profile derive, with their dims if known.
    known: dict[OutputType, int] = {name: dim for name in _types() if (dim := vectors.get(name))}
    made: dict[str, int | None] = {}
    for each in turned_on(postprocessors.values(), resolved.profile):
        try:
            made[each.target] = make_converter(each, resolved.profile, known).dims
        except ValueError:  # only the weights tell, or the load will fail with the reason
            made[each.target] = None
    return made


def _allowed(resolved: ResolvedModel, dims: Mapping[str, int | None]) -> dict[str, int | None]:
    # Keep the outputs that the profile returns; empty if only the weights tell.
    allowed = resolved.profile.output_types
    return {name: dims[name] for name in _types() if name in dims and (allowed is None or name in allowed)}


def _outputs(vectors: Iterable[str], operations: Container[str]) -> tuple[str, ...]:
    # Add `score` and `json` if the model computes them itself; scores computed from its vectors do not count.
    own = [name for operation, name in (("score", "score"), ("extract", "json")) if operation in operations]
    return (*vectors, *own)


def _declared_dims(tasks: Mapping[str, Any]) -> dict[str, int | None]:
    encode = tasks.get("encode") or {}
    return {name: (encode[name] or {}).get("dim") for name in _types() if name in encode}


def _declared_sizes(tasks: Mapping[str, Any]) -> tuple[int, ...]:
    dense = (tasks.get("encode") or {}).get("dense") or {}
    return tuple(dense.get("matryoshka_dims") or ())


def _types() -> Iterable[OutputType]:
    return get_args(OutputType)


def served_operations(own: Collection[str]) -> tuple[Operation, ...]:
    """List the operations of a model whose adapter implements `own`: every model that encodes also scores."""
    return tuple(name for name in OPERATIONS if name in own or (name == "score" and "encode" in own))


def declared_operations(resolved: ResolvedModel) -> tuple[Operation, ...]:
    """List the operations that a model's config declares; empty if only the weights tell."""
    tasks: dict[str, Any] = dict(resolved.config.tasks)
    return served_operations([name for name, task in tasks.items() if task is not None])
