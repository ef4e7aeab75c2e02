"""What a model's config and its weights' files say of lengths and sizes, brought together.

It knows no tensor.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import get_args

from sie_core.contracts import LoadContext, ModelCard, ModelConfig, ModelLoadError, OutputType, Similarity
from sie_pytorch.preparation import Lengths
from sie_pytorch.recipe import Recipe
from sie_pytorch.tokenizer import TextTokenizer

_STATED_LENGTHS = ("max_position_embeddings", "n_positions")
"""Where a `config.json` states the length a model was trained on, although its positions may go beyond."""
_ASSUMED_LENGTH = 512


def needed_card(context: LoadContext) -> ModelCard:
    """Return the card of the weights.

    Raises:
        ModelLoadError: `CONFIG`: the model has no weights.
    """
    if context.card is None:
        raise ModelLoadError("CONFIG", f"{context.model.id} has no weights: give its config `hf_id` or `weights_path`.")
    return context.card


SIMILARITIES: Mapping[OutputType, tuple[Similarity, ...]] = {
    "dense": ("cosine", "dot", "euclidean", "manhattan"),
    "sparse": ("dot", "cosine", "euclidean", "manhattan"),
    "multivector": ("maxsim", "meanmaxsim"),
}
"""What sentence-transformers compares each kind of vectors by; the first where the files name none of them."""


def similarities(context: LoadContext, *outputs: OutputType) -> dict[OutputType, Similarity]:
    """Say how `score` compares the vectors of a model, as sentence-transformers does.

    The profile's `similarity` and the files' `similarity_fn_name` are of the first of its outputs.
    """
    found = {kind: known[0] for kind, known in SIMILARITIES.items() if kind in outputs}
    files = needed_card(context).sentence_transformers.get("similarity_fn_name")
    said = context.model.profile.loadtime.get("similarity") or files
    first = next(iter(found), None)
    if first is not None and said in SIMILARITIES[first]:
        found[first] = said
    return found


def sequence_lengths(
    config: ModelConfig, card: ModelCard, recipe: Recipe, tokenizer: TextTokenizer, most: int | None
) -> tuple[Lengths, str | None]:
    """Bring together how long texts may be, and say where that is less than somebody asked for, or was assumed.

    As in sentence-transformers, the files' own length counts, and within it what the model's positions allow. A length
    in the model's config replaces the files' own. Where nobody states one, one is assumed, unlike there: the time of a
    text grows with the square of its length. Where positions have no end, no request goes beyond these lengths.
    """
    settings, note = recipe.transformer, None
    asked = config.max_sequence_length or tokenizer.max_length
    if asked is None and most is None:
        asked, note = assumed_length(card)
    query = config.max_sequence_length or settings.query_length or asked
    if recipe.multivector is not None and recipe.multivector.expansion is not None:
        expansion = recipe.multivector.expansion
        query = expansion.length if expansion.fixed else max(query or 0, expansion.length)
    document = config.max_sequence_length or settings.document_length or asked
    least = tokenizer.framing + 1
    default = _within(most, asked)
    if default is not None and default < least:
        raise ModelLoadError(
            "CONFIG", f"The model's length is {default} tokens, and its special tokens alone are {tokenizer.framing}."
        )
    if asked is not None and default != asked and (config.max_sequence_length or settings.max_seq_length):
        note = f"{default} tokens in place of the {asked} asked for: the model has no positions beyond"
    if most is None:
        most = max((each for each in (default, query, document) if each is not None), default=None)
    return Lengths(default, _within(most, query), _within(most, document), most, least), note


def assumed_length(card: ModelCard) -> tuple[int, str]:
    """Choose the length of a model that neither its tokenizer nor its positions limit, and word that it was chosen."""
    remedy = "`max_sequence_length` in the model's config sets another length"
    for name in _STATED_LENGTHS:
        stated = card.config.get(name)
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated, f"{stated} tokens, the `{name}` of config.json; the tokenizer's files state none. {remedy}"
    return _ASSUMED_LENGTH, f"{_ASSUMED_LENGTH} tokens were assumed: the weights' files state no length. {remedy}"


def _within(most: int | None, asked: int | None) -> int | None:
    return min((each for each in (most, asked) if each is not None), default=None)


def matryoshka_dims(config: ModelConfig, card: ModelCard, dims: int) -> tuple[int, ...]:
    """List the sizes a vector may be cut to, the native one included; empty where nobody declares any.

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
    """List the outputs that a model's config declares; none where it leaves them to the weights."""
    declared = config.tasks.get("encode") or {}
    return [name for name in get_args(OutputType) if declared.get(name) is not None]


def missing_outputs(config: ModelConfig, given: Container[OutputType]) -> str | None:
    """Word which outputs the model's config declares and the weights have no head for; None where they have all."""
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
