"""A tokenizer that several threads may use at once: only the Rust core, which neither pads nor cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from sie_core.contracts import InvalidInput, Token
from sie_text.recipe import NotUnderstoodError
from sie_text.tokenizer.framing import frame_by_flags
from sie_text.tokenizer.shortening import LONG, shortened
from sie_text.tokenizer.texts import portions, require_unicode

Ids = NDArray[np.int64]
"""Token ids, int64 `[tokens]`."""

SHORT = 512
"""Characters: texts up to this length are tokenised under the interpreter's lock, in 10 to 100 µs.

Releasing and reacquiring the lock costs 30 µs of processor time if other threads have work.
"""


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A model's tokenizer, and its files' rules for cutting and padding texts."""

    core: Tokenizer
    head: Ids
    """The special tokens before every text."""
    tail: Ids
    """The special tokens after every text."""
    _: KW_ONLY
    special_ids: frozenset[int]
    vocabulary: int
    """Number of ids that it may give."""
    embedded: int | None
    """Number of ids for which the model has an embedding, if its config says; some tokenizers give larger ids."""
    max_length: int | None
    """Tokens a text may have by the weights' files, special ones included; None for no limit."""
    cuts_start: bool
    """Whether the weights' files have long texts cut at their start."""
    saved_length: int | None = None
    """Tokens at which `tokenizer.json` itself cuts texts; not every library heeds it."""
    takes_types: bool = False
    """Whether token types go with the ids."""
    takes_mask: bool = True
    """Whether the model gets a mask of the padding tokens."""
    pad: int | None = None
    """The padding token."""
    unknown: int | None = None
    """The token for unknown words."""
    pads_start: bool = False
    """Whether the weights' files have short texts padded at their start."""
    mask: int | None = None
    """The mask token, or the end token if there is no mask."""
    unweighted: frozenset[int] = frozenset()
    """Tokens without meaning, and so without a weight: special tokens, padding, the token for unknown words.
    """
    chat_template: Any = None
    """The Jinja template of chats, if the files hold one; a map if they hold several by name."""
    roles: Mapping[str, str | None] = field(default_factory=dict)
    """The special token of each role: `bos`, `eos`, `cls` and so on."""
    note: str | None = None
    """A note for operators: contradictions between the files, and what another library would do."""
    cuts_between_words: bool = False
    """Whether the middle of a text may be cut out before it is tokenised; see `sie_text.tokenizer.shortening`."""
    origin: Any = None
    """The transformers tokenizer that it was made from, which renders the chat template; None if there is none."""

    @property
    def framing(self) -> int:
        """Number of special tokens of every text."""
        return len(self.head) + len(self.tail)

    def content(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise, without the special tokens around each text."""
        if len(texts) == 1 and len(texts[0]) <= SHORT:
            encodings = [self.core.encode(texts[0], add_special_tokens=False)]
        else:
            encodings = self.core.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def shortened(self, text: str, limit: int | None) -> tuple[str, bool]:
        """Cut from a long text what a limit of `limit` tokens cannot need; return whether anything was cut.

        Its first and last `limit` tokens stay, and more than `limit` in total.
        """
        if limit is None or len(text) <= LONG or not self.cuts_between_words:
            return text, False
        short = shortened(text, limit + 1)
        return short, len(short) < len(text)

    def contents(self, texts: Iterable[str]) -> Iterator[Ids]:
        """Tokenise as `content` does, a few texts at a time, lazily."""
        for portion in portions(texts):
            yield from self.content(portion)

    def encodings(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """Tokenise as `contents` does, with the place of each token in its text: `Encoding.offsets`, in characters."""
        for portion in portions(texts):
            if len(portion) == 1 and len(portion[0]) <= SHORT:
                yield self.core.encode(portion[0], add_special_tokens=False)
            else:
                yield from self.core.encode_batch(portion, add_special_tokens=False)

    def around(self, text: str, before: int, after: int) -> tuple[int, int]:
        """Count the tokens of `text` that end within its first `before` characters, or begin within its last `after`.

        A token that stands for characters of both sides is counted for neither.
        """
        offsets = self.core.encode(text, add_special_tokens=False).offsets
        ends = len(text) - after
        return sum(1 for _, stop in offsets if stop <= before), sum(1 for start, _ in offsets if start >= ends)

    def frame(self, content: Ids) -> Ids:
        """Put the special tokens around the tokens of a text."""
        return np.concatenate((self.head, content, self.tail))

    def framed(self, **flags: bool) -> TextTokenizer:
        """Put the start and end tokens around every text, or take them away; see `frame_by_flags`.

        Raises:
            NotUnderstoodError: Special tokens then stand inside a text.
        """
        notes = [*([self.note] if self.note else []), *frame_by_flags(self.core, flags, self.roles)]
        head, tail = special_tokens(self.core, self.takes_types)
        return replace(self, head=head, tail=tail, note="; ".join(notes) or None)

    def unframe(self, ids: Ids) -> Ids:
        """Remove the special tokens again if both are there."""
        first, last = len(self.head), len(ids) - len(self.tail)
        if first > last or not (np.array_equal(ids[:first], self.head) and np.array_equal(ids[last:], self.tail)):
            return ids
        return ids[first:last]

    def foreign(self, content: Ids) -> bool:
        """Whether the model has no embedding of one of these ids; on a GPU such an id would end the process."""
        if self.embedded is None or self.embedded >= self.vocabulary or len(content) == 0:
            return False
        return bool(content.max() >= self.embedded)

    def require_known(self, content: Ids, where: str, model: str) -> None:
        """Refuse ids for which the model has no embedding.

        Raises:
            InvalidInput: An id has no embedding; `param` is `where`.
        """
        if self.foreign(content):
            raise InvalidInput(
                f"{where} holds a token, id {content.max()}, that {model} has no embedding of; leave it out.",
                param=where,
            )

    def require_tokens(self, tokens: int, where: str, model: str) -> None:
        """Refuse a text without any token, special ones included: no state could represent it.

        Raises:
            InvalidInput: `tokens` is 0; `param` is `where`.
        """
        if tokens == 0:
            raise InvalidInput(f"{where} is empty, and {model} gives it no token; leave it out.", param=where)

    def prompt_length(self, content: Ids, max_length: int | None) -> int:
        """Count the leading tokens of a framed text that sentence-transformers takes for its prompt.

        It tokenises the prompt alone, and treats a special token at its end as the one that ends the text.
        """
        framed = self.frame(content if max_length is None else content[: max(0, max_length - self.framing)])
        return len(framed) - int(len(framed) > 0 and int(framed[-1]) in self.special_ids)

    def expansion_token(self, token: str | None) -> int:
        """Return the id of the token that expands short queries: `token`, or the mask token, or the end token.

        Raises:
            NotUnderstoodError: It does not exist, or the tokenizer pads texts at their start.
        """
        if self.pads_start:
            raise NotUnderstoodError("it fills queries up at their start")
        number = self.mask if token is None else self.core.token_to_id(token)
        if number is None or self.foreign(np.array([number])):
            raise NotUnderstoodError(f"it fills queries up with {token or 'a mask token'}, which its tokenizer has not")
        return number

    def show(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> list[list[Token]]:
        """List the tokens of each text, or its first `most` ones, with or without the special tokens around it.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        checked = [require_unicode(text, f"inputs[{place}]") for place, text in enumerate(texts)]
        encodings = self.core.encode_batch(checked, add_special_tokens=special)
        return [_shown(text, encoding, most) for text, encoding in zip(texts, encodings, strict=True)]

    def write(self, ids: Sequence[Sequence[int]], *, special: bool) -> list[str]:
        """Write the text of each list of ids, with or without the special tokens among them.

        Raises:
            InvalidInput: The tokenizer has no such token; it would pass it over.
        """
        for place, tokens in enumerate(ids):
            for number in tokens:
                if number >= 2**32 or self.core.id_to_token(number) is None:
                    message = f"ids[{place}] holds {number}, and the tokenizer of this model has no such token."
                    raise InvalidInput(message, param=f"ids[{place}]")
        return self.core.decode_batch([list(tokens) for tokens in ids], skip_special_tokens=not special)


def _shown(text: str, encoding: Encoding, most: int | None) -> list[Token]:
    if most is not None:
        encoding.truncate(most)
    columns = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [
        Token(number, name, special=True) if special else Token(number, text[start:stop], False, start=start, stop=stop)
        for number, name, (start, stop), special in columns
    ]


def special_tokens(core: Tokenizer, takes_types: bool) -> tuple[Ids, Ids]:
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
