"""Chooses the words around a text: the weights' prompts, an instruction, or a template of the model's config.

The weights' prompts follow `SentenceTransformer.encode`, `encode_query` and `encode_document` (sentence-transformers
6). A query takes the prompt named `query` and a document the one named `document`; undeclared ones are empty. A text
without a role takes the default prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sie_core.contracts import ROLES, InputType, InvalidInput, ModelCard, ModelLoadError, Task
from sie_text.prompts.templates import parse_template

LONGEST_PROMPT = 32_768
"""Characters a request may put around a text: prompts are cached."""
MOST_ADDED = 2**25
"""Bound on the characters that a request puts around all its texts together, about the size of a body: one prompt in
the body would otherwise be copied around each text.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text before and after an input text."""

    prefix: str = ""
    suffix: str = ""
    strips: bool = False
    """Whether white space around the text is taken off, as some chat templates do."""

    def wrap(self, text: str) -> str:
        """Put `text` between the two."""
        return f"{self.prefix}{text.strip() if self.strips else text}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts the weights declare, by name."""

    by_name: Mapping[str, str]
    default_name: str | None = None
    declared: frozenset[str] = frozenset()
    """The names that the weights themselves declare, also with an empty text."""

    @classmethod
    def of(cls, card: ModelCard, others: Mapping[str, str] | None = None) -> Prompts:
        """Read `config_sentence_transformers.json`; `others`, from other files, override its prompts.

        Raises:
            ModelLoadError: `CONFIG`: the default prompt's name is not among the prompts.
        """
        files = card.sentence_transformers
        declared = {name: text or "" for name, text in (files.get("prompts") or {}).items()}
        declared |= others or {}
        by_name = {"query": "", "document": "", **declared}
        default = files.get("default_prompt_name")
        if default is not None and default not in by_name:
            raise ModelLoadError(
                "CONFIG",
                f"config_sentence_transformers.json: default_prompt_name is {default!r}, and the prompts are "
                f"{', '.join(by_name)}.",
            )
        return cls(by_name, default, frozenset(declared))

    @property
    def note(self) -> str | None:
        """A note for operators on prompts that no request selects."""
        told = []
        roles: tuple[InputType, ...] = ("query", "document")
        for role in roles:
            unused = [name for name in _names(role) if self.by_name.get(name)]
            if unused and not self.by_name[role]:
                told.append(
                    f"the weights declare a prompt {unused[0]!r}, which `encode_{role}` of sentence-transformers does "
                    f"not use; ask for it by its name, or set `{_template_option(role)}` in the model's config"
                )
        return "; ".join(told) or None

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Name `input_type` if the request states a role and the weights have prompts, but none for that role.

        An empty prompt that the weights declare for the role counts as one.

        Raises:
            InvalidInput: As `choose`.
        """
        role = task.input_type or ROLES.get(task.options.get("prompt_name", ""))
        if role is None or task.operation != "encode" or task.instruction is not None or not any(self.by_name.values()):
            return ()
        if task.options.get(_template_option(role)) is not None or self.choose(task) != Prompt():
            return ()
        if any(name in self.declared and not self.by_name[name] for name in _names(role)):
            return ()
        return ("input_type",)

    def choose(self, task: Task, texts: int = 1) -> Prompt:
        """Choose the words around the `texts` texts of `task`.

        A prompt requested by its name wins. Otherwise a template wins over an instruction, and an instruction, even an
        empty one, over the weights' prompts. A template without `{instruction}` means that its texts take none. A name
        of `ROLES` that the weights do not have means the prompt of its role, by any of its names.

        Raises:
            InvalidInput: A template is malformed, or the words are too many; `param` names the field.
        """
        name = task.options.get("prompt_name")
        role = ROLES.get(name) if name is not None and name not in self.by_name else None
        if name is not None and role is None:
            return self._named(name, task)
        input_type = role or task.input_type
        query = input_type == "query"
        option = _template_option(input_type)
        template = task.options.get(option)
        instruction = task.instruction
        if instruction is None and (query or template is not None):
            instruction = task.options.get("default_instruction")
        if template is not None:
            # Counted before the template is filled: it may hold a long instruction many times.
            length = len(template) + template.count("{instruction") * len(instruction or "")
            check_length(f"options.{option}", length, texts)
            try:
                parsed = parse_template(template, ("text",), repeatable=("instruction",))
            except ValueError as problem:
                raise InvalidInput(f"options.{option} {problem}", param=f"options.{option}") from None
            return Prompt(*parsed.around("text", {"instruction": instruction or ""}))
        if instruction is not None:
            check_length("instruction", len(instruction), texts)
            return Prompt(f"{instruction} " if instruction else "")
        if role is not None:
            return Prompt(next(filter(None, map(self.by_name.get, _names(role))), ""))
        if input_type is not None:
            return Prompt(self.by_name[input_type])
        return Prompt(self.by_name[self.default_name] if self.default_name is not None else "")

    def _named(self, name: str, task: Task) -> Prompt:
        param = "options.prompt_name"
        if name not in self.by_name:
            raise InvalidInput(f"{param} is {name!r}; the weights' prompts are {', '.join(self.by_name)}.", param=param)
        if task.instruction is not None:
            raise InvalidInput(
                f"{param} and an instruction both say what stands before a text; leave one out.", param=param
            )
        return Prompt(self.by_name[name])


def _template_option(role: InputType | None) -> str:
    return "query_template" if role == "query" else "doc_template"


def _names(role: InputType) -> list[str]:
    return [name for name, meant in ROLES.items() if meant == role]


def check_length(param: str, length: int, texts: int) -> None:
    """Bound the words that a request puts around its texts.

    Raises:
        InvalidInput: `length` characters are too many around one text, or around `texts`; names `param`.
    """
    if length > LONGEST_PROMPT:
        message = f"{param} puts {length} characters around a text; {LONGEST_PROMPT} are allowed: shorten it."
    elif length * texts > MOST_ADDED:
        message = (
            f"{param} puts {length} characters around each of {texts} texts; {MOST_ADDED} are allowed around all "
            "together: shorten it or send fewer texts."
        )
    else:
        return
    raise InvalidInput(message, param=param)
