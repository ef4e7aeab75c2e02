"""A checkpoint's tokenizers, with the markers of prompts among their tokens."""

from __future__ import annotations

from dataclasses import replace

from sie_text.recipe import NotUnderstoodError
from sie_text.tokenizer import TextTokenizer, load_tokenizer

from sie_core.contracts import ModelCard, ModelLoadError
from sie_gliner.checkpoint.config import GlinerConfig
from sie_gliner.text.tokens import Tokens


def load_tokens(config: GlinerConfig) -> tuple[Tokens, GlinerConfig]:
    """Load the tokenizer of texts; return it with the config, completed by values that follow from the tokenizer.

    Raises:
        ModelLoadError: `CONFIG`, `CORRUPT`, `DEPENDENCY`: it cannot be used.
    """
    tokenizer = _read(config.tokenizer, framed=True)
    if config.entity_index == -1 or config.vocab_size == -1:
        config = _with_markers(tokenizer, config)
        tokenizer = replace(tokenizer, vocabulary=tokenizer.core.get_vocab_size(with_added_tokens=True))
    markers = () if config.label_encoder else (config.entity_index, config.relation_index)
    return Tokens.of(tokenizer, markers), config


def load_label_tokens(card: ModelCard) -> Tokens:
    """Load the tokenizer of labels from its files, of a checkpoint with an encoder for them.

    Raises:
        ModelLoadError: `CONFIG`, `CORRUPT`, `DEPENDENCY`: it cannot be used.
    """
    return Tokens.of(_read(card))


def _read(card: ModelCard, *, framed: bool = False) -> TextTokenizer:
    """Read the tokenizer of a folder; `framed` puts the start and end tokens around rows, if it has any."""
    try:
        tokenizer = load_tokenizer(card)
        # gliner asks for both, because transformers 5 leaves them out if the files do not say.
        flags = {f"add_{role}_token": True for role in ("bos", "eos") if framed and tokenizer.roles.get(role)}
        return tokenizer.framed(**flags) if flags else tokenizer
    except NotUnderstoodError as reason:
        raise ModelLoadError("CONFIG", f"The tokenizer cannot be used: {reason}.") from reason


def _with_markers(tokenizer: TextTokenizer, config: GlinerConfig) -> GlinerConfig:
    """Add the markers as gliner does for a config that does not state their ids."""
    added = [config.entity_marker, config.separator]
    added = [*added, config.relation_marker] if config.relations_layer else ["[FLERT]", *added]
    tokenizer.core.add_special_tokens(added)
    if config.label_encoder:
        return config
    size = tokenizer.core.get_vocab_size(with_added_tokens=True)
    encoder = config.encoder if size == config.vocab_size else {**config.encoder, "vocab_size": size}
    entity = size - (3 if config.relations_layer else 2)
    return replace(config, encoder=encoder, entity_index=entity, relation_index=size - 1, vocab_size=size)
