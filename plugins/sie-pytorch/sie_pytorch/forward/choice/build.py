"""Builds the runner that serves a model: its weights loaded, the runner chosen, the choice told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from sie_text.architectures import architecture_of

from sie_core.contracts import (
    Device,
    KeptChoices,
    ModelCard,
    ModelLoadError,
    OutOfDeviceMemory,
    RunnerSpec,
    device_errors,
)
from sie_pytorch.forward.checkpoint.mapping import MappedFiles
from sie_pytorch.forward.checkpoint.precision import Overflow, Precision, PrecisionLost, name_of, precisions
from sie_pytorch.forward.checkpoint.reading import SPARSE_NOTE, EncoderPart, load_model
from sie_pytorch.forward.choice.built import BuiltRunner, RunnerInfo
from sie_pytorch.forward.choice.candidates import ATTENTION_BACKENDS, PACKED, Requirements, fast_in, takes_lora
from sie_pytorch.forward.choice.choose import Choice, choose
from sie_pytorch.forward.choice.factory import CandidateFactory
from sie_pytorch.forward.judging.logits import Judge
from sie_pytorch.forward.protocol import NotedRunner, RunnerContext

logger = logging.getLogger(__name__)


def build_runner(
    model_folder: Path,
    card: ModelCard,
    device: Device,
    precision: str,
    attention_backend: str = "auto",
    runner_specs: Sequence[RunnerSpec] = (),
    threads: int = 1,
    *,
    runner: str = "auto",
    expands_queries: bool = False,
    needs_lora: bool = False,
    choices: KeptChoices | None = None,
    part: EncoderPart | None = None,
    judge: Judge | None = None,
) -> BuiltRunner:
    """Load a checkpoint's base model, or an encoder inside the checkpoint of a larger model, and pick what runs it.

    The runners of our interface that serve the model type and the device are tried, highest priority first. One may
    serve if its states for packed probe sequences equal the model's own forward pass on each sequence alone. The
    fastest of these serves. The padded runner comes last. `info.notes` and the log name the runner, with reasons.

    Args:
        model_folder: Folder of the transformer's `config.json` and `*.safetensors`.
        card: The facts of the whole checkpoint.
        device: The device to run on.
        precision: `float32` is always used as given; `bfloat16` and `float16` if the device is fast in them and the
            numbers hold.
        attention_backend: `auto`, `sdpa`, `eager`, or one that a registered runner names.
        runner_specs: Every registered runner; those of other interfaces are ignored.
        threads: CPU threads the forward pass may use, for runners that start their own.
        runner: `auto`; `priority`: the first that proves itself, without a race; or the name of one to try first.
        expands_queries: Whether sequences may have tokens that no token attends to (`key_lengths`); proven then too.
        needs_lora: Whether runners that take no LoRA adapters are refused.
        choices: Stores the outcome of a race; None means no race, as with `priority`.
        part: The encoder inside a larger model; None if the checkpoint is one.
        judge: Judges the runner that would serve in half precision; if it refuses, float32 serves. None if only the
            states count.

    Raises:
        ModelLoadError: The checkpoint cannot be served: `CONFIG`, `CORRUPT`, `DEPENDENCY`.
        OutOfDeviceMemory: The device has no room for it.
        DeviceLost: Only a new process gets the device back.
    """
    _require_backend(attention_backend, runner_specs)
    place = torch.device(str(device))
    card = card if part is None else replace(card, config=part.config)
    record = architecture_of(card)
    layers = None if record is None else record.layers
    required = Requirements(
        runner_specs, attention_backend, runner, expands_queries, needs_lora, layers=layers, judge=judge
    )
    fast = fast_in(required, "bfloat16", "" if record is None else record.served_as, place.type)
    lost: PrecisionLost | None = None
    for plan in precisions(precision, place, fast):
        if plan.after_overflow and not isinstance(lost, Overflow):
            continue
        load = partial(_load, model_folder, card, place, plan, attention_backend, threads, part)
        setup = {
            "device": f"{device} {device.name}",
            "precision": name_of(plan.compute),
            "threads": str(threads),
            "folder": model_folder.name,
        }
        setup |= {} if part is None else {"part": part.prefix}
        try:
            with device_errors(), torch.inference_mode():
                asked = required.among(plan.runners)
                factory = CandidateFactory(load, asked)
                choice = choose(factory, asked, choices, setup)
                why = [plan.note] if plan.note else []
                return _built(card, factory, choice, "; ".join([*why, str(lost)] if lost else why))
        except PrecisionLost as reason:
            lost = reason
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(f"{device} has no room for the weights") from error
    raise ModelLoadError("CONFIG", f"No precision serves this model on {device}: {lost}.")


def _require_backend(wanted: str, specs: Sequence[RunnerSpec]) -> None:
    named = {backend for spec in specs for backend in spec.attention_backends}
    if wanted not in named.union(ATTENTION_BACKENDS):
        raise ModelLoadError(
            "DEPENDENCY",
            f"The attention backend {wanted!r} is none of sie-pytorch's ({', '.join(ATTENTION_BACKENDS)}) and no "
            "installed runner has it. Install one that does, or set SIE_ATTENTION_BACKEND to one of them.",
        )


def _load(
    folder: Path,
    card: ModelCard,
    device: torch.device,
    plan: Precision,
    attention_backend: str,
    threads: int,
    part: EncoderPart | None,
) -> RunnerContext:
    model = load_model(folder, plan.weights, device, part, card.records)
    mapped = MappedFiles.of(folder, model.parameters())
    return RunnerContext(
        model,
        folder,
        card,
        device=device,
        dtype=plan.compute,
        attention_backend=attention_backend,
        threads=threads,
        mapped=mapped,
    )


def _built(card: ModelCard, factory: CandidateFactory, choice: Choice, precision_note: str) -> BuiltRunner:
    """Put the runner that was chosen together with its facts, and log them."""
    config, runner, name = factory.config, choice.proven.runner, choice.proven.candidate.name
    notes = {"runner": name, "runner_reason": choice.reason}
    if choice.race:
        notes["race"] = choice.race
    if not takes_lora(runner):
        notes["lora"] = (
            f"Its runner, {name}, applies none. A config that declares `loras` is served by a runner that does; so is "
            f"every model with SIE_RUNNER={PACKED}."
        )
    if precision_note:
        notes["precision"] = precision_note
    if card.config.get("attention_type") == "block_sparse":
        notes["attention"] = SPARSE_NOTE
    if isinstance(runner, NotedRunner):
        notes.update(runner.notes)
    info = RunnerInfo(
        name=name,
        reason=choice.reason,
        precision=name_of(factory.dtype),
        model_type=config.model_type,
        hidden_size=config.hidden_size,
        attention_layers=config.num_hidden_layers,
        max_sequence_length=factory.references.limit,
        memory_bytes=runner.memory_bytes,
        embeds_types=factory.types > 0 and not hasattr(config, "type_vocab_size"),
        notes=notes,
    )
    logger.debug("%s runs on the %s runner in %s: %s", info.model_type, info.name, info.precision, info.reason)
    for note in filter(None, (choice.race, precision_note)):
        logger.debug("%s: %s", info.model_type, note)
    return BuiltRunner(runner, info, factory.device)
