"""Shared by all loads of text models: reads config and card, times the stages, and runs once to warm up."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, get_args

from sie_core.contracts import (
    Adapter,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelConfig,
    ModelLoadError,
    OutputType,
    Similarity,
    Task,
    Unit,
    is_pickled,
)
from sie_text.recipe import misnamed_weights

__all__ = [
    "PROBE_TEXTS",
    "Stages",
    "declared_outputs",
    "disable_progress_bars",
    "matryoshka_dims",
    "missing_outputs",
    "needed_card",
    "profile_fault",
    "profile_options",
    "refuse_pickled",
    "require_weights",
    "run_once",
    "similarities",
    "warm_up",
]

SIMILARITIES: Mapping[OutputType, tuple[Similarity, ...]] = {
    "dense": ("cosine", "dot", "euclidean", "manhattan"),
    "sparse": ("dot", "cosine", "euclidean", "manhattan"),
    "multivector": ("maxsim", "meanmaxsim"),
}
"""Similarities of sentence-transformers for each kind of vectors; the first is the default."""

PROBE_TEXTS = (
    "Where was the treaty signed?",
    "The treaty was signed in Vienna on 9 June 1815, after nine months of talks.",
    "Ada Lovelace wrote to Charles Babbage about his engine.",
    "Call us at +49 30 901820 or write to service@example.org.",
    "I waited forty minutes for cold soup; never again!",
    "def area(radius): return 3.14159 * radius ** 2",
    "Der Zug nach Zürich fährt heute von Gleis 7 ab.",
    "Shares of the company rose by 4.2 % after the announcement, its largest gain since March.",
    "Wash the lentils, add twice as much water and a pinch of salt, and let them simmer.",
    "ok",
)
"""Short texts of several kinds, a question first, by which a load judges the effect of a precision."""


WARM_UP = "This text is long enough for classes that join several tokens in one."
"""Text of the warm-up run at load."""


class Stages:
    """A stopwatch that reports each stage of a load to its context."""

    def __init__(self, context: LoadContext) -> None:
        self._report = context.stage
        self._began = time.perf_counter()

    def done(self, name: str) -> None:
        """Report the stage that ends now; the next one begins."""
        now = time.perf_counter()
        self._report(name, now - self._began)
        self._began = now


def disable_progress_bars() -> None:
    """Keep transformers' progress bars, if it is installed, out of the log: each update would be a line."""
    try:
        from transformers.utils.logging import disable_progress_bar
    except ModuleNotFoundError:
        return
    disable_progress_bar()


def profile_options(context: LoadContext) -> dict[str, Any]:
    """Return the options of the model's profile, without null ones: null unsets an option, as in a request."""
    return {name: value for name, value in context.model.profile.runtime.items() if value is not None}


def profile_fault(context: LoadContext, error: InvalidInput) -> ModelLoadError:
    """Turn the refusal of a first run, which asks as the profile says, into the failure of its load."""
    problem = error.message.replace("options.", "runtime.", 1)
    return ModelLoadError("CONFIG", f"Profile {context.model.profile.name!r}: {problem}")


def warm_up(
    adapter: Adapter, context: LoadContext, outputs: Sequence[OutputType] = ("dense",)
) -> dict[OutputType, int]:
    """Run one text through the whole model, so that the first request finds everything ready; return the dims of each
    output.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options, kinds = profile_options(context), tuple(outputs)
    _prepared(adapter, context, Task("encode", kinds, input_type="query", options=options))
    output = run_once(adapter, context, Task("encode", kinds, options=options))
    return {name: _dims(output, name) for name in outputs}


def run_once(adapter: Adapter, context: LoadContext, task: Task) -> ItemOutput:
    """Run one text through the whole model for `task`, whose options are the profile's; return the result.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    units = _prepared(adapter, context, task)
    return adapter.combine(units, adapter.finish(units, adapter.run(units)))


def _prepared(adapter: Adapter, context: LoadContext, task: Task) -> list[Unit]:
    try:
        return list(adapter.prepare([Item(text=WARM_UP)], task))
    except InvalidInput as error:
        raise profile_fault(context, error) from None


def _dims(output: ItemOutput, name: OutputType) -> int:
    if name == "sparse":
        assert output.sparse is not None
        assert output.sparse.dims is not None
        return output.sparse.dims
    vectors = output.dense if name == "dense" else output.multivector
    assert vectors is not None
    return int(vectors.shape[-1])


def needed_card(context: LoadContext) -> ModelCard:
    """Return the card of the weights.

    Raises:
        ModelLoadError: `CONFIG`: the model has no weights.
    """
    if context.card is None:
        raise ModelLoadError("CONFIG", f"{context.model.id} has no weights: give its config `hf_id` or `weights_path`.")
    return context.card


def refuse_pickled(card: ModelCard) -> None:
    """Refuse a model if any of its modules has its weights only in a pickle.

    Raises:
        ModelLoadError: `CONFIG`, naming the file and the remedy.
    """
    files = [PurePosixPath(name) for name in card.files]
    safe = {file.parent for file in files if file.suffix == ".safetensors"}
    for file in files:
        if file.parent not in safe and is_pickled(file.name):
            raise ModelLoadError(
                "CONFIG",
                f"{file}: these weights are a Python pickle, which can run code when it is read, and there are no "
                "safetensors beside it. Take a revision that has `model.safetensors`, or convert the checkpoint where "
                "you trust it: load it with sentence-transformers or transformers and call save_pretrained().",
            )


def require_weights(card: ModelCard) -> None:
    """Refuse a folder without the transformer's weights.

    Raises:
        ModelLoadError: `CONFIG`, naming the missing one.
    """
    refuse_pickled(card)
    if fault := misnamed_weights(card):
        raise ModelLoadError("CONFIG", f"{fault}.")
    if not any("/" not in name and name.endswith(".safetensors") for name in card.files):
        raise ModelLoadError("CONFIG", "The folder of weights holds no `model.safetensors`.")


def similarities(context: LoadContext, *outputs: OutputType) -> dict[OutputType, Similarity]:
    """Return how `score` compares the vectors of a model, as in sentence-transformers.

    The profile's `similarity` and the files' `similarity_fn_name` are of the first of its outputs.
    """
    found = {kind: known[0] for kind, known in SIMILARITIES.items() if kind in outputs}
    files = needed_card(context).sentence_transformers.get("similarity_fn_name")
    said = context.model.profile.loadtime.get("similarity") or files
    first = next(iter(found), None)
    if first is not None and said in SIMILARITIES[first]:
        found[first] = said
    return found


def matryoshka_dims(config: ModelConfig, card: ModelCard, dims: int) -> tuple[int, ...]:
    """List the sizes a vector may be cut to, including the native one; empty if none are declared.

    The model's config declares them, or else `matryoshka_dimensions` in the weights' `config.json`.

    Raises:
        ModelLoadError: `CONFIG`: a declared size is beyond the native one.
    """
    dense = (config.tasks.get("encode") or {}).get("dense") or {}
    declared = dense.get("matryoshka_dims")
    if declared is None:
        declared = card.config.get("matryoshka_dimensions")
        declared = [size for size in _sizes(declared) if size <= dims]
    if not declared:
        return ()
    if max(declared) > dims:
        raise ModelLoadError("CONFIG", f"matryoshka_dims names {max(declared)}, and the model's vectors have {dims}.")
    return tuple(sorted({*declared, dims}))


def declared_outputs(config: ModelConfig) -> list[OutputType]:
    """List the outputs that a model's config declares; empty if it leaves them to the weights."""
    declared = config.tasks.get("encode") or {}
    return [name for name in get_args(OutputType) if declared.get(name) is not None]


def missing_outputs(config: ModelConfig, given: Container[OutputType]) -> str | None:
    """Describe declared outputs for which the weights have no head; None if there are none."""
    missing = [name for name in declared_outputs(config) if name not in given]
    if not missing:
        return None
    return (
        f"the model's config declares {' and '.join(missing)}, and the weights' files hold no head for it that is "
        "read (one kept as a Python pickle, such as BGE-M3's `sparse_linear.pt`, has to be pinned in the model's "
        "config, or converted to safetensors)"
    )


def _sizes(value: object) -> Iterable[int]:
    return (size for size in value if isinstance(size, int) and size > 0) if isinstance(value, list) else ()
