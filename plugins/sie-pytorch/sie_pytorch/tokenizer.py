"""Texts to token ids exactly as sentence-transformers gives them, through the tokenizer's Rust core alone.

transformers builds the tokenizer once, at load, because what its classes make of the files differs from the files;
after that nothing of it is called. It knows no prompt and no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers

from sie_core.contracts import ModelCard, ModelLoadError
from sie_pytorch.recipe import NotUnderstoodError, Recipe, TransformerSettings, has_tokenizer

Ids = NDArray[np.int64]

UNLIMITED = 1_000_000_000
"""A tokenizer without a length of its own states one beyond this (transformers: 1e30)."""


TOKENIZER_CONFIG = "tokenizer_config.json"
TRIAL = "a tokenizer's trial: ☃"
"""A text with words that it may lack."""


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A tokenizer that neither pads nor cuts; several threads may use it at once."""

    core: Tokenizer
    head: Ids
    """The special tokens before every text."""
    tail: Ids
    """The special tokens after every text."""
    special_ids: frozenset[int]
    vocabulary: int
    """How many ids it may give."""
    embedded: int | None
    """How many ids the model has an embedding of, where its config says; some tokenizers give ids beyond."""
    max_length: int | None
    """Tokens a text may have by the weights' files, special ones included; None for no limit."""
    cuts_start: bool
    """Whether the weights' files have long texts cut at their start."""
    takes_types: bool = False
    """Whether token types go with the ids."""
    filler: int | None = None
    """The mask token, or the end token where there is no mask."""
    weightless: frozenset[int] = frozenset()
    """The tokens that frame or fill up a text, or stand for what the vocabulary lacks."""
    pads_start: bool = False
    """Whether the weights' files have short texts filled up at their start."""

    def foreign(self, content: Ids) -> bool:
        """Whether the model has no embedding of one of these ids; on a GPU such an id would end the process."""
        if self.embedded is None or self.embedded >= self.vocabulary or len(content) == 0:
            return False
        return bool(content.max() >= self.embedded)

    @property
    def framing(self) -> int:
        """How many special tokens every text gets."""
        return len(self.head) + len(self.tail)

    def content(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise, without the special tokens around each text."""
        encodings = self.core.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def frame(self, content: Ids) -> Ids:
        """Put the special tokens around the tokens of a text."""
        return np.concatenate((self.head, content, self.tail))

    def unframe(self, ids: Ids) -> Ids:
        """Take the special tokens off again where both stand there."""
        first, last = len(self.head), len(ids) - len(self.tail)
        if first > last or not (np.array_equal(ids[:first], self.head) and np.array_equal(ids[last:], self.tail)):
            return ids
        return ids[first:last]

    def prompt_length(self, content: Ids, max_length: int | None) -> int:
        """Count the leading tokens of a framed text that sentence-transformers takes for its prompt.

        It tokenises the prompt alone and takes a special token at its end for the one that ends the text.
        """
        framed = self.frame(content if max_length is None else content[: max(0, max_length - self.framing)])
        return len(framed) - int(len(framed) > 0 and int(framed[-1]) in self.special_ids)


def load_tokenizer(card: ModelCard, recipe: Recipe, *, trust_remote_code: bool) -> TextTokenizer:
    """Build the tokenizer of a model from its files; nothing is fetched.

    Raises:
        ModelLoadError: `CONFIG`: there is none. `CORRUPT`: its files cannot be read. `DEPENDENCY`: a package to read
            them is missing.
        NotUnderstoodError: It has no Rust core, or frames texts in another way.
    """
    tokenizer = read_tokenizer(card, recipe.transformer, trust_remote_code=trust_remote_code)
    if recipe.multivector is not None:
        register_markers(tokenizer, recipe.multivector.markers)
    if not recipe.declared and tokenizer.chat_template is not None:
        raise NotUnderstoodError("texts go through its chat template")
    return text_tokenizer(tokenizer, card, recipe.transformer)


def read_tokenizer(card: ModelCard, settings: TransformerSettings, *, trust_remote_code: bool) -> Any:
    """Have transformers build its tokenizer from the files; see `load_tokenizer`."""
    if not has_tokenizer(card):
        raise ModelLoadError("CONFIG", "The folder of weights holds no tokenizer: tokenizer.json is missing.")
    from transformers import AutoTokenizer

    arguments = dict(settings.tokenizer_kwargs)
    if settings.max_seq_length is not None:
        arguments.setdefault("model_max_length", settings.max_seq_length)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(card.path), local_files_only=True, trust_remote_code=trust_remote_code, **arguments
        )
    except ImportError as error:
        raise ModelLoadError(
            "DEPENDENCY", f"The tokenizer's files need a package that is not installed: {error.name or 'see the log'}."
        ) from error
    except Exception as error:
        # Rust's errors have no class of their own, and a missing file is reported in half a dozen ways.
        raise broken_tokenizer(card, error) from error
    if not tokenizer.is_fast:
        raise NotUnderstoodError(f"{type(tokenizer).__name__} has no implementation in the tokenizers library")
    return tokenizer


def broken_tokenizer(card: ModelCard, error: Exception) -> ModelLoadError:
    """Say that the files make no tokenizer that works, and which of them is missing where one is."""
    said = f"The tokenizer cannot be built from the weights' files ({type(error).__name__})"
    return ModelLoadError("CORRUPT", f"{said}{lacking_config(card)}; see the log.")


def lacking_config(card: ModelCard) -> str:
    """Say that the file is missing by which most tokenizers are told their special tokens; empty where it is there."""
    return "" if TOKENIZER_CONFIG in card.files else f"; {TOKENIZER_CONFIG} is missing"


def text_tokenizer(tokenizer: Any, card: ModelCard, settings: TransformerSettings) -> TextTokenizer:
    """Take the Rust core and the facts of transformers' tokenizer, which is used up: its core is set up anew.

    Raises:
        ModelLoadError: `CORRUPT`: it cannot tokenise.
        NotUnderstoodError: It frames texts in a way of its own.
    """
    # Not a copy by way of JSON: that rounds the scores of a Unigram vocabulary, and equal ones then cut otherwise.
    core: Tokenizer = tokenizer.backend_tokenizer
    core.no_truncation()
    core.no_padding()
    try:
        core.encode(TRIAL)
    except Exception as error:  # Rust's errors have no class of their own
        raise broken_tokenizer(card, error) from error
    if settings.do_lower_case:
        _lower_case(core)
    takes_types = "token_type_ids" in tokenizer.model_input_names
    head, tail = _special_tokens(core, takes_types)
    limit, embedded = tokenizer.model_max_length, card.config.get("vocab_size")
    return TextTokenizer(
        core=core,
        head=head,
        tail=tail,
        special_ids=frozenset(tokenizer.all_special_ids),
        vocabulary=core.get_vocab_size(with_added_tokens=True),
        embedded=embedded if isinstance(embedded, int) else None,
        max_length=None if limit is None or limit >= UNLIMITED else int(limit),
        cuts_start=tokenizer.truncation_side == "left",
        takes_types=takes_types,
        filler=tokenizer.eos_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
        weightless=frozenset(
            number
            for number in (
                tokenizer.cls_token_id,
                tokenizer.eos_token_id,
                tokenizer.pad_token_id,
                tokenizer.unk_token_id,
            )
            if number is not None
        ),
        pads_start=tokenizer.padding_side == "left",
    )


def register_markers(tokenizer: Any, markers: Sequence[str]) -> None:
    """Have a prompt's marker be one token, where the vocabulary has it and the tokenizer would take it apart.

    PyLate and Stanford's ColBERT put `[unused0]` or `[Q] ` before a text as an id. Each marker is looked for whole and
    up to its first space, as sentence-transformers does.
    """
    from transformers import AddedToken

    known = {*tokenizer.get_vocab(), *tokenizer.added_tokens_encoder}
    added = []
    for marker in markers:
        words = marker.split(None, 1)
        token = next((each for each in (marker, *words[:1]) if each in known), None) if words else None
        if token is not None and tokenizer.tokenize(token) != [token]:
            added.append(AddedToken(token, normalized=False, special=True))
    if added:
        tokenizer.add_special_tokens({"additional_special_tokens": added})


def filling_token(tokenizer: TextTokenizer, token: str | None) -> int:
    """Find the id of what queries are filled up with: `token`, or the mask token, or the end token.

    Raises:
        NotUnderstoodError: There is none, or the tokenizer fills texts up at their start.
    """
    if tokenizer.pads_start:
        raise NotUnderstoodError("it fills queries up at their start")
    number = tokenizer.filler if token is None else tokenizer.core.token_to_id(token)
    if number is None or tokenizer.foreign(np.array([number])):
        raise NotUnderstoodError(f"it fills queries up with {token or 'a mask token'}, which its tokenizer has not")
    return number


def _lower_case(core: Tokenizer) -> None:
    """Lower-case first, unless the tokenizer does so by itself."""
    normalizer = core.normalizer
    steps = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, Normalizers):
        steps = [normalizer[index] for index in range(len(normalizer))]
    if not any(isinstance(step, Lowercase) for step in steps):
        core.normalizer = Normalizers([Lowercase(), *steps])


def _special_tokens(core: Tokenizer, takes_types: bool) -> tuple[Ids, Ids]:
    """Find the special tokens before and after every text by tokenising one."""
    encoding = core.encode("a")
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    ids = np.array(encoding.ids, dtype=np.int64)
    (content,) = np.nonzero(~special)
    if len(content) == 0 or special[content[0] : content[-1] + 1].any():
        raise NotUnderstoodError("its tokenizer puts special tokens inside a text")
    if takes_types and any(encoding.type_ids):
        raise NotUnderstoodError("its tokenizer gives the tokens of one text several types")
    return ids[: content[0]], ids[content[-1] + 1 :]
