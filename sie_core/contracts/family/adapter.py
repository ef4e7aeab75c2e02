"""The interface of a model family: an `Adapter` with four small methods, and the context that a load receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sie_core.contracts.backend.requests import Item, Operation, OutputType, Task
from sie_core.contracts.backend.tokens import Token
from sie_core.contracts.device.devices import Device
from sie_core.contracts.family.choices import KeptChoices
from sie_core.contracts.family.lora import Lora
from sie_core.contracts.family.outputs import ItemOutput
from sie_core.contracts.family.runners import RunnerSpec
from sie_core.contracts.model.card import ModelCard
from sie_core.contracts.model.config import ResolvedModel

LabelUse = Literal["no", "optional", "required"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"]
"""Similarity of two vectors, by sentence-transformers' names; distances count as negative numbers.

The last two apply to multi-vectors, the others to dense and sparse vectors.
"""


@dataclass(frozen=True, slots=True)
class Truncation:
    """A text, or a pair of texts, that was cut: its length and the kept length, in tokens."""

    tokens: int
    kept: int
    at_least: bool = False
    """Whether it has more tokens than that: the middle of a very long text is not read."""


@dataclass(slots=True, eq=False)
class Unit:
    """One row of a forward pass: a whole item, a window of an item, or either paired with the query."""

    item: int
    """The position in the request of the item it belongs to."""
    cost: int
    """Cost on the device, at least 1: the tokens of a text, of both texts of a pair, the patches of an image, or
    samples / chunk of audio, rounded up.

    A chunk is the number of samples that cost the model as much as one token.
    """
    key: Hashable
    """The inference key: units of one model with equal keys, and of requests with the same LoRA adapter, may share a
    run."""
    _: KW_ONLY
    payload: Any
    """The adapter's own data: the input of `run`, ready to be concatenated."""
    tokens: int = 0
    """Tokens that it adds to the request's usage."""
    truncated: Truncation | None = None
    nbytes: int = 0
    """Bytes of `payload` in memory until its run: ids, pixels, samples.

    The engine bounds the prepared work of a request by these bytes and by the cost.
    """


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts of a loaded model."""

    outputs: tuple[OutputType, ...] = ()
    """Output types of `encode`; empty if the model does not encode."""
    operations: tuple[Operation, ...] = ("encode",)
    """Operations that the adapter itself implements.

    A model that encodes and does not name `score` is scored by its vectors. The engine encodes query and items with
    their roles, and the adapter sees two `encode` tasks.
    """
    inputs: tuple[str, ...] = ("text",)
    """Kinds of input that an item may hold: `text`, `image`, `audio`, `video`, `document`.

    The engine refuses the others.
    """
    _: KW_ONLY
    takes_labels: LabelUse = "no"
    """Whether `extract` reads `Task.labels`. The engine refuses their lack, or their presence, accordingly.

    A model that takes them as an option may refuse labels that its weights do not know.
    """
    classes: tuple[str, ...] = ()
    """A classifier's labels in the order of its logits; empty if requests bring the labels."""
    takes_schema: bool = False
    """Whether `extract` reads `Task.output_schema`."""
    dims: Mapping[OutputType, int] = field(default_factory=dict)
    similarity: Mapping[OutputType, Similarity] = field(default_factory=dict)
    """How `score` compares vectors of a model without scores of its own.

    Default: `dot`, and `maxsim` for multi-vectors.
    """
    matryoshka_dims: tuple[int, ...] = ()
    """Sizes that `dimensions` may name, including the native one; empty if the weights declare none."""
    max_sequence_length: int | None = None
    memory_bytes: int = 0
    """Bytes of the weights on the device."""
    takes_lora: bool = False
    """Whether requests may choose LoRA adapters."""
    precision: str = "float32"
    """The precision of the computation, after the family's own checks."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes for the operator: the runner that serves, or a fallback and its reason.

    A note under an output's name says why the model does not give it; one under `lora` says why it takes no LoRA
    adapters. Errors for requests that ask for these quote the note. One under `runner` is its name, and one under
    `precision` why `precision` is not the one asked for.
    """

    @property
    def computed(self) -> str:
        """The precision and, after a blank, the runner, if a note names one: `bfloat16 cpu-kernels`."""
        return f"{self.precision} {self.notes.get('runner', '')}".rstrip()


@dataclass(frozen=True, slots=True)
class LoadContext:
    """Everything that a load may use of the engine."""

    model: ResolvedModel
    device: Device
    precision: str
    """`float16`, `bfloat16`, `float32`, as the config or the settings ask for."""
    _: KW_ONLY
    weights: Path | None = None
    """The local folder of the weights; None for a weightless model."""
    card: ModelCard | None = None
    tokenizers: Mapping[str, Path] = field(default_factory=dict)
    """Folders with the small files of other repositories, by name: the family's `companions`, and those that the config
    names as `hf_tokenizer_dependencies`.
    """
    attention_backend: str = "auto"
    runner: str = "auto"
    """Choice among `runners`: `auto` takes the fastest proven one, `priority` the first, a name that one."""
    threads: int = 1
    """CPU threads the forward pass may use."""
    runners: tuple[RunnerSpec, ...] = ()
    """Every registered runner, of any interface."""
    choices: KeptChoices | None = None
    """Measurements and choices of earlier loads of these weights; None if nothing may be measured for a choice."""
    unfit: str | None = None
    """Reasons of other families that found the weights unfit, from their files or at load; None if this family is the
    first.
    """
    stage: Callable[[str, float], None] = lambda name, seconds: None
    """Reports a finished stage of the load with its duration in seconds."""


class Adapter(ABC):
    """A loaded model, made by the function that its family names as `load`.

    `prepare` and `finish` run on CPU threads, several at once; `run` runs on the one thread of the device. All are
    plain functions: async stays at the edges of the engine.
    """

    facts: ModelFacts

    @abstractmethod
    def prepare(self, items: Sequence[Item], task: Task) -> Iterable[Unit]:
        """Turn items into units: tokenise, decode media, window. Every item gives at least one unit, and all its units
        follow each other.

        For `score`, an item is a document, and each of its units is a pair with `task.query`.

        The engine asks for the units of a large request as it has room for them. A generator of single units or small
        groups bounds the memory of the request; a list holds all units at once.

        Raises:
            InvalidInput: Names the field in `param`, e.g. `items[0].text`, `items[0].images[1]`, `query.text`,
                `labels`, `options.threshold`; fails this request alone.
        """

    @abstractmethod
    def run(self, units: Sequence[Unit]) -> Any:
        """Run one forward pass over units of equal key, cheapest first; return whatever `finish` needs.

        On an asynchronous device it may return before the device is done and must not wait for it.

        Raises:
            OutOfDeviceMemory: The engine frees memory, splits the batch and tries again.
            DeviceLost: The device is lost until a restart; every request is refused.
        """

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait until an asynchronous device is done with `raw`, on a CPU thread, before `finish`.

        Families whose `run` returns earlier override it: its return ends the measured time of a batch and starts the
        next batch, so that neither includes the time of `finish`.

        Returns:
            Whether the device is known to be done. If False, as here, the end of `finish` counts as the device's.

        Raises:
            OutOfDeviceMemory: Asynchronous errors of the device appear here; handled as in `run`.
            DeviceLost: As in `run`.
        """
        return False

    def abandon(self, units: Sequence[Unit]) -> None:  # noqa: B027 - most passes end soon
        """Take note that nobody waits any more for units that `run` was given together; their computation may end.

        Called on any thread, perhaps again for the same units or after their end; must be quick and not raise.
        """

    @abstractmethod
    def finish(self, units: Sequence[Unit], raw: Any) -> Sequence[ItemOutput]:
        """Turn the raw outputs into one output a unit, in the order of `units`. May wait for the device.

        Arrays must own their memory: `raw` is freed afterwards.
        """

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Make one output of the units of one item, in their order, on a CPU thread. Families that window override it.

        The units may have run in different batches; their payloads still hold the start of each window.
        """
        (output,) = outputs
        return output

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Name the fields of `task` that this model ignores; replies list them. Runs on the event loop and must be
        quick.

        `input_type` is such a field if the weights have prompts, but none for this role. Families with prompts override
        it.

        Raises:
            InvalidInput: As `prepare`.
        """
        return ()

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Load a LoRA adapter in PEFT's layout for `Task.lora`, on a loader thread; base weights are unchanged.

        Called only if `facts.takes_lora`; families that say so override it.

        Raises:
            ModelLoadError: With the failure's class: `CONFIG` if it does not fit the model.
            OutOfDeviceMemory: The device has no room.
        """
        raise NotImplementedError

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts on a CPU thread, uncut and without prompts. Families with a tokenizer override it.

        Args:
            texts: The texts.
            special: Whether the special tokens around each text are listed.
            most: Tokens listed per text, from the start; None for all.

        Raises:
            NotImplementedError: It has no tokens to show.
            InvalidInput: A text is wrong; `param` is `inputs[0]`.
        """
        raise NotImplementedError

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the text of each list of token ids on a CPU thread. Families whose tokenizer can override it.

        Args:
            ids: The ids of each text; none is negative.
            special: Whether special tokens are written.

        Raises:
            NotImplementedError: It has no way back from tokens to text.
            InvalidInput: The tokenizer has no such token; `param` is `ids[0]`.
        """
        raise NotImplementedError

    def unload(self) -> None:  # noqa: B027 - most adapters are freed by losing their last reference
        """Free whatever is not freed with the last reference; the adapter is not used afterwards."""
