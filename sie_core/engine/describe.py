"""Describes a model for `/v1/models`: what its config declares, then, once loaded, what its weights are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, get_args

from sie_core.catalog.snapshot import DEFAULT_PROFILE
from sie_core.contracts import ModelFacts, ModelInfo, OutputType, ResolvedModel
from sie_core.engine.loaded import LoadedModel
from sie_core.engine.served import declared_operations, served_operations
from sie_core.engine.slots import ModelSlot


def describe(resolved: ResolvedModel, slot: ModelSlot | None) -> ModelInfo:
    """Describe a model; `slot` is None where it was never asked for."""
    loaded = slot.loaded if slot else None
    config = resolved.config
    facts = loaded.facts if loaded else None
    return ModelInfo(
        id=resolved.id,
        inputs=facts.inputs if facts else config.inputs,
        outputs=_outputs(facts.outputs, facts.operations) if facts else declared_outputs(resolved),
        dims=_dims(facts) if facts else _declared_dims(config.tasks),
        state=slot.state if slot else "available",
        max_sequence_length=(facts and facts.max_sequence_length) or config.max_sequence_length,
        revision=config.hf_revision,
        last_error=slot.failure.describe() if slot and slot.failure else None,
        profiles=tuple(config.profiles) if resolved.profile.name == DEFAULT_PROFILE else (DEFAULT_PROFILE,),
        adapter=_adapter(resolved, loaded),
        matryoshka_dims=facts.matryoshka_dims if facts else _declared_sizes(config.tasks),
        memory_bytes=facts.memory_bytes if facts else None,
        notes=dict(loaded.notes) if loaded else {},
        operations=served_operations(facts.operations) if facts else declared_operations(resolved),
        load_stages_s=dict(slot.stages_s) if slot else {},
    )


def _adapter(resolved: ResolvedModel, loaded: LoadedModel | None) -> str | None:
    return loaded.family.id if loaded else resolved.profile.adapter_path


def _dims(facts: ModelFacts) -> dict[str, int | None]:
    return {str(name): dim for name, dim in facts.dims.items()}


def declared_outputs(resolved: ResolvedModel) -> tuple[str, ...]:
    """List what a model's config says it returns, as `/v1/models` names it; nothing where the weights decide."""
    tasks, allowed = resolved.config.tasks, resolved.profile.output_types
    encode = tasks.get("encode") or {}
    vectors = [name for name in _types() if name in encode and (allowed is None or name in allowed)]
    return _outputs(vectors, tasks)


def _outputs(vectors: Iterable[str], operations: Container[str]) -> tuple[str, ...]:
    """Add to the vectors what the model itself gives beside them; scores computed of its vectors are not its own."""
    own = [name for operation, name in (("score", "score"), ("extract", "json")) if operation in operations]
    return (*vectors, *own)


def _declared_dims(tasks: Mapping[str, Any]) -> dict[str, int | None]:
    encode = tasks.get("encode") or {}
    return {name: encode[name].get("dim") for name in _types() if encode.get(name)}


def _declared_sizes(tasks: Mapping[str, Any]) -> tuple[int, ...]:
    dense = (tasks.get("encode") or {}).get("dense") or {}
    return tuple(dense.get("matryoshka_dims") or ())


def _types() -> Iterable[str]:
    return get_args(OutputType)
