"""The runners that may serve a model: selection, order and construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from sie_text.architectures import Layers

from sie_core.contracts import RunnerSpec
from sie_pytorch.forward.judging.logits import Judge
from sie_pytorch.forward.longrope import by_length, longrope_parameters
from sie_pytorch.forward.padded.runner import PaddedRunner
from sie_pytorch.forward.protocol import LoraRunner, Runner, RunnerContext, RunnerUnfitError
from sie_pytorch.forward.specs import INTERFACE, VERSION_2, other_version
from sie_pytorch.forward.wrapping import is_of_version_2, of_version_2

ATTENTION_BACKENDS = ("auto", "sdpa", "eager")
"""Backends that no runner needs to name."""
AUTO, PRIORITY = "auto", "priority"
"""Values of `SIE_RUNNER` that name no runner."""
PACKED = "packed"
"""The name of the runner that drives transformers' model classes without padding."""
PADDED = "padded"
"""The name of the runner that is tried last, in several variants."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements for the runner of one load."""

    specs: Sequence[RunnerSpec] = ()
    """Every registered runner; those of other interfaces are ignored."""
    attention_backend: str = "auto"
    runner: str = "auto"
    """`auto`, `priority`, or the name of the runner to try first."""
    expands_queries: bool = False
    """Whether sequences may have tokens that nothing attends to (`key_lengths`)."""
    takes_lora: bool = False
    """Whether it must take LoRA adapters."""
    pads: bool = True
    """Whether the padded runner is tried too."""
    layers: Layers | None = None
    """The layers by the record of the model type; None if none describes them."""
    judge: Judge | None = None
    """Judges whether half precision preserves the output of the model's head."""

    def among(self, names: frozenset[str] | None) -> Requirements:
        """Restrict the requirements to some runners; None is all of them."""
        if names is None:
            return self
        return replace(self, specs=[spec for spec in self.specs if spec.name in names], pads=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A runner that may be tried."""

    name: str
    make: Callable[[RunnerContext], Runner]
    backend: str
    takes_lora: bool
    """Whether it must take LoRA adapters to serve."""
    features: frozenset[str] = frozenset()
    """The features that its `RunnerSpec` states."""

    def made(self, context: RunnerContext) -> Runner:
        """Make the runner.

        Raises:
            RunnerUnfitError: It cannot serve the model, or takes no LoRA adapters although it must.
        """
        runner = self.make(replace(context, attention_backend=self.backend, features=self.features))
        if self.takes_lora and not takes_lora(runner):
            raise RunnerUnfitError("it takes no LoRA adapters, and the model's config asks for some")
        rope = longrope_parameters(context.model)
        return runner if rope is None else by_length(runner, rope, context.device)


def takes_lora(runner: Runner) -> bool:
    """Return whether a runner applies LoRA adapters to any layer."""
    return isinstance(runner, LoraRunner) and bool(runner.linear_shapes)


def fast_in(required: Requirements, precision: str, model_type: str, device_kind: str) -> frozenset[str]:
    """Name the runners that may serve a model and are fast in a precision whatever the CPU is fast in."""
    names = {spec.name for spec in _fit(required, model_type, device_kind) if precision in spec.fast_in}
    return frozenset(names if required.runner in (AUTO, PRIORITY) else names & {required.runner})


def registered(required: Requirements, model_type: str, device_kind: str) -> list[Candidate]:
    """List the registered runners that may serve a model, except the padded one: one requested by name, then by
    priority.
    """
    fit = [spec for spec in _fit(required, model_type, device_kind) if spec.name != PADDED]
    fit.sort(key=lambda spec: (spec.name != required.runner, -spec.priority, spec.name))
    return [
        Candidate(
            spec.name, partial(_load_target, spec), required.attention_backend, required.takes_lora, spec.features
        )
        for spec in fit
    ]


def padded(required: Requirements, *, fused: bool) -> Iterator[Candidate]:
    """List the padded runners, ever more careful; `fused`: whether the model's class takes PyTorch's own attention."""
    if not required.pads:
        return
    if required.attention_backend != "eager" and fused:
        yield Candidate(PADDED, PaddedRunner, "sdpa", required.takes_lora)
        yield Candidate(f"{PADDED} (eager)", PaddedRunner, "eager", required.takes_lora)
    else:
        yield Candidate(PADDED, PaddedRunner, "eager", required.takes_lora)
    yield Candidate(f"{PADDED} (equal lengths)", partial(PaddedRunner, exact=True), "eager", required.takes_lora)


def of_other_versions(required: Requirements) -> list[str]:
    """List runners written for another version of the interface, with the remedy."""
    told = ((spec.name, other_version(spec)) for spec in required.specs)
    return [f"not {name}: {problem}" for name, problem in told if problem]


def _fit(required: Requirements, model_type: str, device_kind: str) -> list[RunnerSpec]:
    needs = None if required.layers is None else required.layers.needs
    return [
        spec
        for spec in required.specs
        if spec.interface in (INTERFACE, VERSION_2)
        and spec.serves(model_type, device_kind, required.attention_backend, needs)
    ]


def _load_target(spec: RunnerSpec, context: RunnerContext) -> Runner:
    """Import the class a spec names and make the runner."""
    module, _, name = spec.target.partition(":")
    runner: Runner = getattr(import_module(module), name)(context)
    return of_version_2(runner) if spec.interface == VERSION_2 or is_of_version_2(runner) else runner
