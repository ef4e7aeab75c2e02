"""How a model family registers: its name, the weights it claims, the options it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from sie_core.contracts.backend.requests import Operation
from sie_core.contracts.model.card import ModelCard
from sie_core.contracts.model.weights import SAFETENSORS

Stage = Literal["load", "prepare", "run", "finish"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a family: a key of `options` in a request, or of a profile's `runtime` or `loadtime`.

    `stage` is the stage that reads it. Only `run` options belong into an inference key; `load` options are refused in
    a request.
    """

    name: str
    stage: Stage
    type: type | tuple[type, ...]
    """Type of a value; `bool` does not count as `int`, and an `int` counts as `float`."""
    _: KW_ONLY
    description: str
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    operations: tuple[Operation, ...] = ()
    """The operations that read it; empty means all.

    Other operations do not receive it. A reply names such an option of a request, but not of a profile.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """A family says it can serve some weights. The higher `priority` wins; `reason` is shown to the operator."""

    reason: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class NoClaim:
    """A family's reason why it cannot serve weights of its own kind; shown if no other family serves them.

    For weights of another kind, a family returns None instead.
    """

    reason: str
    """The obstacle in the files, and the remedy if there is one; without a full stop at the end."""


CompanionFunction = Callable[[ModelCard], Iterable[str]]
ClaimFunction = Callable[[ModelCard], Claim | NoClaim | None]


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family of models that one function loads.

    The plugin module that names it imports no heavy library: the function is a `module:function` string, and `claims`
    reads the card only.
    """

    id: str
    """Unique among all installed plugins, e.g. `pytorch`; a model config may name it as `adapter_path`."""
    load: str
    """`module:function`, imported at the first load. Called with a `LoadContext` on a loader thread, it returns an
    `Adapter` on `context.device`, verified and warmed up.

    Errors: `FamilyUnfitError` to have the next claiming family asked, `ModelLoadError` with the failure's class,
    `OutOfDeviceMemory` if the device has no room, and `DeviceLost` if only a new process can use the device again.
    """
    claims: ClaimFunction
    _: KW_ONLY
    devices: frozenset[str] = frozenset()
    """Device kinds it serves; empty means all."""
    options: tuple[Option, ...] = ()
    weightless: bool = False
    """Serves models that have no weights, selected by `adapter_path` alone."""
    weights: tuple[str, ...] = SAFETENSORS
    """Patterns of the files that hold its weights, such as `*.onnx`, where `*` spans folders.

    Tiers fetch them with the configs and tokenizers of a repository that it serves. Pickles are never fetched.
    """
    companions: CompanionFunction | None = None
    """Names the repositories whose small files, a tokenizer or a config, a load needs beside these weights.

    It reads the folder of the card. The load finds them in `LoadContext.tokenizers`, by name.
    """
    preview: str | None = None
    """`module:function`, imported when weights of the family are first seen.

    It takes their `ModelCard` and the model's `ModelConfig`. It returns the `ModelFacts` expected of a load, as far as
    small files tell, or None. `/v1/models` lists these facts. A family without a preview reports nothing before a load.
    """


def claim_architectures(*architectures: str, priority: int = 0) -> ClaimFunction:
    """Make a claim function for weights whose `config.json` names one of `architectures`."""

    def claims(card: ModelCard) -> Claim | None:
        for name in card.architectures:
            if name in architectures:
                return Claim(f"its config.json names the architecture {name}", priority)
        return None

    return claims
