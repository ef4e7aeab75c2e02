"""Templates in the syntax of Python's format strings: one parser for prompts, pairs and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

LONGEST_SHOWN = 80
"""Characters of a template's fields that a message quotes."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: pieces of text, each with the field after it; the last piece has no field."""

    pieces: tuple[tuple[str, str | None], ...]

    def around(self, field: str, values: Mapping[str, str]) -> tuple[str, str]:
        """Fill in every other field, and return what stands before `field` and what after; it is there once."""
        sides = [""]
        for literal, name in self.pieces:
            sides[-1] += literal
            if name == field:
                sides.append("")
            elif name is not None:
                sides[-1] += values[name]
        before, after = sides
        return before, after


@lru_cache(maxsize=256)
def parse_template(
    text: str,
    once: Sequence[str],
    *,
    optional: Sequence[str] = (),
    repeatable: Sequence[str] = (),
    blank: str | None = None,
) -> Template:
    """Parse a template such as `Instruct: {instruction}\\nQuery: {text}`.

    Args:
        text: The template.
        once: Fields that must occur exactly once.
        optional: Fields that it may hold once.
        repeatable: Fields that it may hold as often as wanted.
        blank: The field that `{}` stands for; None allows no `{}`.

    Raises:
        ValueError: It holds other fields or formats, or is malformed; the message names the fault and what is allowed.
    """
    names = " and ".join(f"{{{'' if name == blank else name}}}" for name in once)
    allowed = f"allowed: a text with {names} once{' each' if len(once) > 1 else ''}"
    allowed += "".join(f", {{{name}}} once at most" for name in optional)
    allowed += "".join(f", {{{name}}} as often as wanted" for name in repeatable) + ", and {{ }} for braces."
    pieces, odd = [], False
    try:
        for literal, field, form, conversion in Formatter().parse(text):
            name = blank if field == "" and blank else field
            pieces.append((literal, name))
            odd = odd or bool(form or conversion)
    except ValueError:
        raise ValueError(f"is no template; {allowed}") from None
    held = Counter(name for _, name in pieces if name is not None)
    most = {**dict.fromkeys(once, 1), **dict.fromkeys(optional, 1), **dict.fromkeys(repeatable, len(text))}
    if odd or any(held[name] != 1 for name in once) or any(count > most.get(name, 0) for name, count in held.items()):
        shown = ", ".join(f"{{{name}}}" for name in held.elements()) or "no field"
        raise ValueError(f"holds {shown[:LONGEST_SHOWN]}; {allowed}")
    return Template(tuple(pieces))
