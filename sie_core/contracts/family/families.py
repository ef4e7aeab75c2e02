"""How a model family registers: what it is called, which weights it claims, which options it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    """What a value must be; `bool` is not an `int` here, and an `int` is a `float`."""
    description: str
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    operations: tuple[Operation, ...] = ()
    """The operations that read it; empty means all. It is kept from the others: a reply says so of a request's, and a
    profile's goes without saying."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A family says it can serve some weights. The higher `priority` wins; `reason` is shown to the operator."""

    reason: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class NoClaim:
    """A family says why it cannot serve weights of its own kind: shown where nobody else serves them.

    Of weights of another kind it says nothing: its claim is None.
    """

    reason: str
    """What in the files is in the way, and the remedy where there is one; no full stop at its end."""


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

    It raises `FamilyUnfitError` where the family that claims the weights next should be asked, `ModelLoadError` with
    the failure's class, `OutOfDeviceMemory` where the device has no room, and
    `DeviceLost` where only a new process gets the device back.
    """
    claims: ClaimFunction
    devices: frozenset[str] = frozenset()
    """Device kinds it serves; empty means all."""
    options: tuple[Option, ...] = ()
    weightless: bool = False
    """Serves models that have no weights, by `adapter_path` alone."""
    weights: tuple[str, ...] = SAFETENSORS
    """Patterns of the files that hold its weights, such as `*.onnx`, where `*` spans folders. Tiers fetch them with the
    configs and tokenizers of a repository that it serves. Pickles are fetched for nobody."""
    preview: str | None = None
    """`module:function`, imported once weights are seen that the family serves: it takes their `ModelCard` and the
    model's `ModelConfig` and returns the `ModelFacts` that a load will come to, as far as small files tell, or None.
    `/v1/models` lists what it says. A family without one tells nothing before a load."""


def claim_architectures(*architectures: str, priority: int = 0) -> ClaimFunction:
    """Make a claim function for weights whose `config.json` names one of `architectures`."""

    def claims(card: ModelCard) -> Claim | None:
        for name in card.architectures:
            if name in architectures:
                return Claim(f"its config.json names the architecture {name}", priority)
        return None

    return claims
