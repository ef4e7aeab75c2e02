"""A checkpoint's `gliner_config.json`: the kind of model, and the refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from sie_text.recipe import heed_auto_map

from sie_core.contracts import LoadContext, ModelCard, ModelLoadError, is_pickled
from sie_gliner.checkpoint.bases import CONFIG_FILE, DEPENDENCIES, base_config, find_tokenizer

WEIGHTS_FILE = "model.safetensors"
LABELS_TOKENIZER = "labels_tokenizer"
"""The folder of the tokenizer of labels, if they have an encoder."""
REMEDY = (
    "Or convert the checkpoint once with gliner, where there is a network: "
    "GLiNER.from_pretrained(name).save_pretrained(folder, safe_serialization=True); then serve the folder."
)
POOLINGS = ("first", "last", "mean", "max")
DECIDES_ITSELF = "what it labels is not for a request to say; uni- and bi-encoders that take labels are served."

Pooling = Literal["first", "last", "mean", "max"]


@dataclass(frozen=True, slots=True)
class GlinerConfig:
    """A checkpoint's config, with gliner's defaults for missing values."""

    encoder: Mapping[str, Any]
    """The transformers config of the encoder of texts."""
    label_encoder: Mapping[str, Any] | None
    """Config of the label encoder; None if labels precede the text."""
    tokenizer: ModelCard
    """The files of the tokenizer of texts."""
    label_tokenizer: ModelCard | None
    """Those of the tokenizer of labels; None if labels precede the text."""
    span_encoder: Mapping[str, Any] | None
    """Config of an encoder over the words of a text, before spans are represented."""
    span_mode: str
    """Representation of spans; `token_level` if words are scored as start, end and inside of a span."""
    represents_spans: bool
    """Whether a model that scores words scores the spans these make, too."""
    hidden_size: int
    max_width: int
    """Words of a span, in models that score spans."""
    max_words: int
    """Words of a window."""
    pooling: Pooling
    """Which of a word's tokens represent it."""
    splitter: str
    lstm_layers: int
    fuses_layers: bool
    """Whether the states of all layers of an encoder are summed up."""
    fusion: tuple[str, ...]
    """The kinds of attention between words and labels after the encoders."""
    fusion_layers: int
    relations_layer: str | None
    """Layer that pairs entities; `none` for all pairs. None if the checkpoint finds no relations."""
    triples_layer: str | None
    """Layer that scores a pair for a relation; None for a product with the pair's representation."""
    entity_marker: str
    relation_marker: str
    separator: str
    entity_index: int
    relation_index: int
    vocab_size: int
    """These three are -1 if they follow from the tokenizer."""
    reads_entity_marker: bool
    """Whether a label is represented by its marker's state, not by that of its first token."""
    reads_relation_marker: bool

    @property
    def scores_words(self) -> bool:
        """Whether words are scored, not spans."""
        return self.span_mode == "token_level"

    @property
    def kind(self) -> str:
        """Description for operators."""
        labels = "bi-encoder" if self.label_encoder else "uni-encoder"
        scores = "words" if self.scores_words else f"spans ({self.span_mode})"
        return f"GLiNER, {labels}, scores {scores}{' and relations' if self.relations_layer else ''}"


def read_config(card: ModelCard, tokenizers: Mapping[str, Path] = MappingProxyType({})) -> GlinerConfig:
    """Read a checkpoint's config, and refuse one that cannot be served.

    Args:
        card: The checkpoint's files.
        tokenizers: The folders of the repositories that the model's config names for it.

    Raises:
        ModelLoadError: `CONFIG` if its kind is not served or it needs files that are nowhere, `CORRUPT` if a file is
            missing or no JSON object.
    """
    require_safetensors(card)
    written = _read_json(card.path / CONFIG_FILE)
    _refuse_kinds(written)
    bi_encoder = written.get("relations_layer") is None and written.get("labels_encoder") is not None
    written = {**written, "encoder_config": _encoder(written, "encoder_config", "model_name", tokenizers)}
    label_tokenizer = None
    if bi_encoder:
        written["labels_encoder_config"] = _encoder(written, "labels_encoder_config", "labels_encoder", tokenizers)
        label_tokenizer = find_tokenizer(card, LABELS_TOKENIZER, written.get("labels_encoder"), tokenizers)
    tokenizer = find_tokenizer(card, "", written.get("model_name"), tokenizers)
    return _understood(written, tokenizer, label_tokenizer)


def _encoder(written: Mapping[str, Any], field: str, base: str, tokenizers: Mapping[str, Path]) -> Mapping[str, Any]:
    """Return an encoder's config: as written, else that of the base encoder which the checkpoint names.

    Raises:
        ModelLoadError: `CONFIG`: nothing is known of it; `CORRUPT`.
    """
    config = written.get(field)
    if config:
        return cast("Mapping[str, Any]", config)
    name = written.get(base)
    found = base_config(name, tokenizers)
    if found is None:
        raise ModelLoadError(
            "CONFIG",
            f"{CONFIG_FILE} holds no {field}, and nothing is known of {name!r}, its {base}. State in the model's "
            f"config where its config.json is, `{DEPENDENCIES}: {{{name or 'org/base-encoder'}: main}}`.",
        )
    size = written.get("vocab_size", -1)
    return found if field != "encoder_config" or size == -1 else {**found, "vocab_size": size}


def require_safetensors(card: ModelCard) -> None:
    """Refuse a checkpoint without its weights in safetensors.

    Raises:
        ModelLoadError: `CONFIG`, naming the file and the remedy.
    """
    if WEIGHTS_FILE in card.files:
        return
    for name in card.files:
        if is_pickled(name):
            raise ModelLoadError(
                "CONFIG",
                f"{name}: these weights are a Python pickle, which can run code when it is read, and there is no "
                f"{WEIGHTS_FILE} beside it. Where you trust it, pin it in the model's config, `pickles: {{{name}: "
                f"{{sha256: …}}}}` (`sie models pin --pickles` writes that of the Hub): it is converted once. {REMEDY}",
            )
    raise ModelLoadError("CONFIG", f"The folder of weights holds no {WEIGHTS_FILE}.")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read as JSON.") from error
    if not isinstance(config, dict):
        raise ModelLoadError("CORRUPT", f"{file.name} must hold a JSON object.")
    return config


def _refuse_kinds(written: Mapping[str, Any]) -> None:
    """Refuse checkpoints that write labels themselves, read a stream, or have their labels built in."""
    if written.get("model_type") == "gliner_streaming_span":
        raise ModelLoadError("CONFIG", f"It reads a stream, and {DECIDES_ITSELF}")
    if written.get("labels_decoder") is not None and written.get("relations_layer") is None:
        raise ModelLoadError("CONFIG", f"It writes labels itself, so {DECIDES_ITSELF}")
    if written.get("precomputed_prompts_mode"):
        raise ModelLoadError("CONFIG", f"Its labels are built in, so {DECIDES_ITSELF}")


def heed_own_code(context: LoadContext, config: GlinerConfig) -> dict[str, str]:
    """Refuse encoders whose code comes with the weights: it is run here for no model. Return the note on an ignored
    value.

    Raises:
        ModelLoadError: `CONFIG`, naming the class.
    """
    notes: dict[str, str] = {}
    for encoder in (config.encoder, config.label_encoder or {}, config.span_encoder or {}):
        notes |= heed_auto_map(context, encoder, runs="nowhere", file=CONFIG_FILE)
    return notes


def _understood(written: Mapping[str, Any], tokenizer: ModelCard, label_tokenizer: ModelCard | None) -> GlinerConfig:
    fields = _Fields(written)
    schema = fields.text("post_fusion_schema", "")
    return GlinerConfig(
        encoder=fields.encoder("encoder_config"),
        label_encoder=fields.encoder("labels_encoder_config") if label_tokenizer else None,
        tokenizer=tokenizer,
        label_tokenizer=label_tokenizer,
        span_encoder=fields.mapping("span_encoder_config"),
        span_mode=fields.text("span_mode", "markerV0"),
        represents_spans=fields.flag("represent_spans", default=False),
        hidden_size=fields.number("hidden_size", 512, least=2),
        max_width=fields.number("max_width", 12, least=1),
        max_words=fields.number("max_len", 384, least=1),
        pooling=cast("Pooling", fields.text("subtoken_pooling", "first", POOLINGS)),
        splitter=fields.text("words_splitter_type", "whitespace"),
        lstm_layers=fields.number("num_rnn_layers", 1),
        fuses_layers=fields.flag("fuse_layers", default=False),
        fusion=tuple(schema.split("-")) if schema else (),
        fusion_layers=fields.number("num_post_fusion_layers", 1),
        relations_layer=fields.optional("relations_layer"),
        triples_layer=fields.optional("triples_layer"),
        entity_marker=fields.text("ent_token", "<<ENT>>"),
        relation_marker=fields.text("rel_token", "<<REL>>"),
        separator=fields.text("sep_token", "<<SEP>>"),
        entity_index=fields.number("class_token_index", -1, least=-1),
        relation_index=fields.number("rel_token_index", -1, least=-1),
        vocab_size=fields.number("vocab_size", -1, least=-1),
        reads_entity_marker=fields.flag("embed_ent_token", default=True),
        reads_relation_marker=fields.flag("embed_rel_token", default=True),
    )


class _Fields:
    """Reads the fields of a config, each of its type.

    Every method raises `ModelLoadError` (`CONFIG`), naming the field, if it is of another.
    """

    def __init__(self, written: Mapping[str, Any]) -> None:
        self._written = written

    def number(self, name: str, default: int, least: int = 0) -> int:
        value = self._written.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _wrong(name, value, f"a number from {least} on")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._written.get(name, default)
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str, choices: tuple[str, ...] = ()) -> str:
        value = self._written.get(name, default)
        if not isinstance(value, str) or (choices and value not in choices):
            raise _wrong(name, value, f"one of {', '.join(choices)}" if choices else "a text")
        return value

    def optional(self, name: str) -> str | None:
        return None if self._written.get(name) is None else self.text(name, "")

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self._written.get(name)
        if value is not None and not isinstance(value, dict):
            raise _wrong(name, value, "an object")
        return value

    def encoder(self, name: str) -> Mapping[str, Any]:
        return {"model_type": "deberta-v2", **(self.mapping(name) or {})}


def _wrong(name: str, value: object, allowed: str) -> ModelLoadError:
    return ModelLoadError("CONFIG", f"{CONFIG_FILE}: {name} is {value!r}, and must be {allowed}.")
