"""The family `sentence-transformers`: any dense encoder that the library loads, padded.

It calls only public methods of the library, and its facts say that it is a fallback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import getsizeof
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sie_text.loading import Stages, matryoshka_dims, needed_card, refuse_pickled, similarities, warm_up
from sie_text.prompts import Prompts
from sie_text.recipe import NotUnderstoodError
from sie_text.tokenizer import TRIAL, broken_tokenizer, text_at

from sie_core.contracts import (
    Adapter,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelFacts,
    ModelLoadError,
    Task,
    Truncation,
    Unit,
    device_errors,
)
from sie_sentence_transformers.fallback.counting import TokenCounter
from sie_sentence_transformers.fallback.loading import heed_own_code, limit_length, load_model
from sie_sentence_transformers.fallback.proof import find_out, probe_texts, require_all_weights
from sie_sentence_transformers.tokenizing import obey_files

VECTOR = "sentence_embedding"
"""The library's name of a text's vector among its modules' outputs."""


@dataclass(frozen=True, slots=True)
class Call:
    """Shared by the texts of one call of `encode`; the inference key."""

    prompt: str
    task: Literal["query", "document"] | None
    max_length: int | None
    normalize: bool


class SentenceTransformersEncoder(Adapter):
    """A model that sentence-transformers runs."""

    def __init__(
        self, context: LoadContext, model: Any, prompts: Prompts, reason: str, told: Mapping[str, str]
    ) -> None:
        card = needed_card(context)
        self._name = context.model.id
        self._model = model
        self._prompts = prompts
        self._threads = context.threads
        length_note = limit_length(model, context.model.config.max_sequence_length, card)
        self._counter = TokenCounter(model)
        try:
            self._counter.count(TRIAL, "", None, None)
        except Exception as error:  # Rust's errors have no specific class
            raise broken_tokenizer(card, error) from error
        last = type(model[-1]).__name__
        self._ends_in_unit_length = last == "Normalize" and model.truncate_dim is None
        self._always_normalizes = last == "Normalize"
        self._alone, self._least = False, 0
        try:
            alone = self._prove()
            dims = warm_up(self, context)["dense"]
        except KeyError as error:
            if error.args != (VECTOR,):
                raise
            raise _without_vector(context.model.id, card) from error
        batches = alone or "padded batches"
        notes = {"runner": "sentence-transformers (fallback)", "runner_reason": f"{batches}: {reason}"}
        ours = {"prompts": prompts.note, "max_sequence_length": length_note}
        self.facts = ModelFacts(
            outputs=("dense",),
            dims={"dense": dims},
            similarity=similarities(context, "dense"),
            matryoshka_dims=matryoshka_dims(context.model.config, card, dims),
            max_sequence_length=self._counter.max_length,
            memory_bytes=sum(weight.nbytes for weight in (*model.parameters(), *model.buffers())),
            precision=str(model.dtype or torch.float32).removeprefix("torch."),
            notes={**told, **notes, **{name: note for name, note in ours.items() if note}},
        )

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Count tokens; the library tokenises again when it runs.

        Raises:
            InvalidInput: An item or an option is wrong, or a text would have to be cut at the other end.
        """
        prompt = self._prompts.choose(task, len(items))
        call = self._call(task, prompt.prefix)
        for index, item in enumerate(items):
            text = text_at(item, f"items[{index}]", self._name) + prompt.suffix
            counted = self._counter.count(text, call.prompt, call.task, call.max_length)
            if counted.kept < self._least:
                raise InvalidInput(
                    f"items[{index}].text: {self._name} takes no text of {counted.kept} tokens; it needs {self._least} "
                    "at least, special ones included.",
                    param=f"items[{index}].text",
                )
            truncated = counted if counted.kept < counted.tokens else None
            if truncated is not None:
                self._allow(truncated, task, f"items[{index}].text")
            yield Unit(
                index,
                max(1, counted.kept),
                call,
                payload=text,
                tokens=counted.kept,
                truncated=truncated,
                nbytes=getsizeof(text),
            )

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Name `input_type` if no prompt is of that role."""
        return self._prompts.passed_over(task)

    def run(self, units: Sequence[Unit]) -> NDArray[np.float32]:
        """Encode one batch to float32 `[units, dims]`.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        call = units[0].key
        assert isinstance(call, Call)
        texts = [unit.payload for unit in units]
        with device_errors():
            calls = [[text] for text in texts] if self._alone else [texts]
            vectors = torch.cat([self._encode(each, call) for each in calls])
            array: NDArray[np.float32] = vectors.float().cpu().contiguous().numpy()
            return array

    def await_device(self, units: Sequence[Unit], raw: NDArray[np.float32]) -> bool:
        """Wait for nothing: `run` did."""
        return True

    def _encode(self, texts: Sequence[str], call: Call) -> torch.Tensor:
        """Have the library encode texts in one batch."""
        lengths = {} if call.max_length is None else {"processing_kwargs": {"text": {"max_length": call.max_length}}}
        vectors: torch.Tensor = self._model.encode(
            list(texts),
            prompt=call.prompt,
            task=call.task,
            batch_size=len(texts),
            show_progress_bar=False,
            convert_to_tensor=True,
            normalize_embeddings=call.normalize,
            **lengths,
        )
        return vectors

    def _prove(self) -> str | None:
        """Find out whether batches may be padded and how short a text may be; describe why texts are encoded alone.

        Raises:
            ModelLoadError: `CONFIG`: a text has other vectors each time.
        """
        tasks: tuple[Literal["query", "document"] | None, ...] = (None,)
        if type(self._model[0]).__name__ == "Router":
            tasks = ("query", "document")
        found = []
        for task in tasks:
            call = Call("", task, None, normalize=False)
            encode, count = partial(self._encode, call=call), partial(self._kept, call=call)
            found.append(find_out(probe_texts(self._model), encode, count))
        reasons = [each.alone for each in found if each.alone]
        self._alone, self._least = bool(reasons), max(each.least for each in found)
        return reasons[0] if reasons else None

    def finish(self, units: Sequence[Unit], raw: NDArray[np.float32]) -> Sequence[ItemOutput]:
        """Give each unit its row; all rows share an array that nothing else holds."""
        call = units[0].key
        assert isinstance(call, Call)
        unit_length = call.normalize or self._ends_in_unit_length
        return [ItemOutput(dense=row, normalized=unit_length) for row in raw]

    def unload(self) -> None:
        """Free the weights now; the engine frees PyTorch's cache of them."""
        del self._model, self._counter

    def _kept(self, text: str, call: Call) -> int:
        return self._counter.count(text, call.prompt, call.task, call.max_length).kept

    def _call(self, task: Task, prompt: str) -> Call:
        normalize = task.options.get("normalize")
        if normalize is False and self._always_normalizes:
            raise InvalidInput(
                f"options.normalize is false, and {self._name} is served by sentence-transformers, which applies the "
                "model's own normalisation always; leave the option out.",
                param="options.normalize",
            )
        return Call(prompt, task.input_type, self._length(task), bool(normalize))

    def _length(self, task: Task) -> int | None:
        option = "query_max_length" if task.input_type == "query" and task.options.get("query_max_length") else None
        option = option or "max_seq_length"
        asked: int | None = task.options.get(option)
        most = self._counter.max_length
        if asked is None or (self._counter.takes_length and (most is None or asked <= most)):
            return asked
        allowed = f"a length up to {most}" if self._counter.takes_length else "none, its input module cuts by itself"
        raise InvalidInput(f"options.{option} is {asked}; allowed: {allowed}.", param=f"options.{option}")

    def _allow(self, cut: Truncation, task: Task, where: str) -> None:
        """Refuse a cut the request does not want."""
        if task.truncate == "error":
            raise InvalidInput(
                f"{where} has {cut.tokens} tokens, and {self._name} takes {cut.kept}: shorten or split it, or allow "
                "truncation.",
                param=where,
                code="INPUT_TOO_LONG",
            )
        end = "start" if self._counter.cuts_start else "end"
        if task.truncate not in (None, end):
            raise InvalidInput(
                f"truncate is {task.truncate!r}, and {self._name} is served by sentence-transformers, which cuts its "
                f"texts at their {end}; allowed: {end}, error.",
                param="truncate",
            )


def load(context: LoadContext) -> Adapter:
    """Load the model.

    Raises:
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    card, reason = needed_card(context), context.unfit or "the family sentence-transformers was chosen"
    refuse_pickled(card)
    told = heed_own_code(context, card)
    prompts = Prompts.of(card)
    torch.set_num_threads(context.threads)
    stages = Stages(context)
    with device_errors():
        model = load_model(context, str(card.path))
        require_all_weights(model, card)
        stages.done("weights")
        try:
            tokenizer_note = obey_files(model)
        except NotUnderstoodError as error:
            raise ModelLoadError("CONFIG", f"{context.model.id}: {error}.") from error
        except ModelLoadError:
            raise
        except Exception as error:  # Rust's errors have no specific class
            raise broken_tokenizer(card, error) from error
        if tokenizer_note:
            told = {**told, "tokenizer": tokenizer_note}
        encoder = SentenceTransformersEncoder(context, model, prompts, reason, told)
    stages.done("warm")
    return encoder


def _without_vector(name: str, card: ModelCard) -> ModelLoadError:
    """Make the error for modules of which none gives one vector per text."""
    kinds = " → ".join(module.kind for module in card.modules)
    return ModelLoadError(
        "CONFIG",
        f"The modules.json of {name} chains {kinds}, which gives a state for each token and none for a text; "
        "sentence-transformers cannot encode with it either. Add the Pooling module the model was trained with (its "
        "`1_Pooling` folder), or remove modules.json to have the mean.",
    )
