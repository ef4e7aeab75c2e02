"""A pair of texts written out as one, the way language models are asked about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from sie_text.prompts import Prompt, parse_template
from sie_text.recipe import NotUnderstoodError
from sie_text.tokenizer import TextTokenizer

QWEN3_RERANKER = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""The training format of the Qwen3-Reranker models (https://huggingface.co/Qwen/Qwen3-Reranker-0.6B)."""
QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Their default instruction, from the same page."""

SEAM = "\N{INVISIBLE SEPARATOR}sie seam\N{INVISIBLE SEPARATOR}"
"""Stands in a prompt where one part of it ends: the parts are tokenised one by one."""

PairTemplate = Callable[[str, str | None], Prompt]
"""Makes what surrounds the documents of a query and an instruction, None for the template's own."""


def format_template(template: str, default_instruction: str = "") -> PairTemplate:
    """Make a template from a text with `{query}` and `{document}`, and optionally `{instruction}`.

    `{+}` in it ends a part: the parts are tokenised one by one, as by code that joins token ids.

    Raises:
        ValueError: It lacks one of the two, repeats one, or holds another field; the message says so.
    """
    parsed = parse_template(template, ("query", "document"), optional=("instruction",), repeatable=("+",))

    def fill(query: str, instruction: str | None) -> Prompt:
        values = {"query": query, "instruction": default_instruction if instruction is None else instruction}
        return Prompt(*parsed.around("document", {**values, "+": SEAM}))

    return fill


MARK = "\N{INVISIBLE SEPARATOR}sie document\N{INVISIBLE SEPARATOR}"
"""Stands in for the document while a chat template renders; a query may hold it, for the last one counts."""


def chat_template(
    tokenizer: TextTokenizer,
    message_format: Literal["flat", "structured", "auto"],
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> PairTemplate:
    """Make a template from the tokenizer's chat template: a message of the role `query` and one of the role `document`.

    As in sentence-transformers, an instruction is a message of the role `system` before them.

    Args:
        tokenizer: The tokenizer.
        message_format: Whether the content of a message is a text or a list of parts.
        arguments: Values for the template, such as `add_generation_prompt`.

    Raises:
        NotUnderstoodError: The template does not write both, or changes a document beyond stripping it.
    """
    renderer, options = _renderer(tokenizer), {**arguments, "tokenize": False}
    structured = message_format == "structured" or (
        message_format == "auto" and any(sign in str(tokenizer.chat_template) for sign in STRUCTURED_SIGNS)
    )

    def render(query: str, document: str, instruction: str | None) -> str:
        roles = [("query", query), ("document", document)]
        if instruction:
            roles.insert(0, ("system", instruction))
        text: str = renderer.apply_chat_template([_message(*role, structured) for role in roles], **options)
        return text

    def fill(query: str, instruction: str | None, strips: bool = False) -> Prompt:
        before, mark, after = render(query, MARK, instruction).rpartition(MARK)
        if not mark:
            raise NotUnderstoodError("its chat template does not write a document out")
        return Prompt(before, after, strips)

    probe = "\n two words\n"
    try:
        plain, whole = fill("one", "two"), render("one", probe, "two")
        stripping = Prompt(plain.prefix, plain.suffix, strips=True)
    except NotUnderstoodError:
        raise
    except Exception as error:  # a template may raise any exception
        raise NotUnderstoodError("its chat template takes no pair of query and document") from error
    if whole not in (plain.wrap(probe), stripping.wrap(probe)) or "one" not in plain.prefix:
        raise NotUnderstoodError("its chat template does not write a query and a document out one after the other")
    strips = whole != plain.wrap(probe)
    return lambda query, instruction: fill(query, instruction, strips)


def _renderer(tokenizer: TextTokenizer) -> Any:
    """Return the renderer of the chat template: the class of transformers, or one without a tokenizer."""
    if tokenizer.origin is not None:
        return tokenizer.origin
    from transformers import PreTrainedTokenizerFast

    tokens = {f"{role}_token": token for role, token in tokenizer.roles.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.core, chat_template=tokenizer.chat_template, **tokens)


STRUCTURED_SIGNS = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")
"""Signs of a template that takes the content of a message in parts; the rule of sentence-transformers."""


def _message(role: str, text: str, structured: bool) -> Mapping[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if structured else text}
