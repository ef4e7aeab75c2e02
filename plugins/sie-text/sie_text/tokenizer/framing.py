"""The special tokens around a text: from `tokenizer.json`, and two flags of `tokenizer_config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, processors

Pieces = list[dict[str, Any]]

PLAIN: Mapping[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}
"""The template of a tokenizer that puts nothing around a text."""


def frame_by_flags(core: Tokenizer, flags: Mapping[str, Any], tokens: Mapping[str, str | None]) -> list[str]:
    """Add the start or the end token around every text if a flag says so, or remove it if one says not.

    The other special tokens of the template stay, including tokens that are also the `cls` or `sep` token: DeBERTa's
    files say `add_bos_token: false` and mean neither. Version 4 of transformers built Llama's, Gemma's and Cohere's
    tokenizers by these flags; a missing flag changes nothing.

    Args:
        core: The tokenizer; its post-processor is replaced.
        flags: `add_bos_token` and `add_eos_token`, if stated.
        tokens: The special tokens by their role: `bos`, `eos`, `cls`, `sep`.

    Returns:
        The flags that contradict the rest of the files and are not obeyed, each with the reason.
    """
    unheeded = []
    for role, other in (("bos", "cls"), ("eos", "sep")):
        wanted, token = flags.get(f"add_{role}_token"), tokens.get(role)
        if not isinstance(wanted, bool) or (not wanted and token in (None, tokens.get(other))):
            continue
        number = None if token is None else core.token_to_id(token)
        if token is None or number is None:
            unheeded.append(f"add_{role}_token is {str(wanted).lower()}, and the vocabulary has no {role}_token")
            continue
        encoding = core.encode("a")
        end = 0 if role == "bos" else -1
        if not encoding.ids:
            unheeded.append(f"add_{role}_token is {str(wanted).lower()}, and tokenizer.json gives a letter no token")
            continue
        if wanted == (encoding.ids[end] == number):
            continue
        if wanted and encoding.special_tokens_mask[end]:
            unheeded.append(f"add_{role}_token is true, and tokenizer.json puts {encoding.tokens[end]!r} there")
        elif not _edit(core, role, token, number, wanted):
            unheeded.append(f"add_{role}_token is {str(wanted).lower()}, and tokenizer.json has no template to change")
    return unheeded


def _edit(core: Tokenizer, role: str, token: str, number: int, wanted: bool) -> bool:
    """Add a token to the template, or take it away; return whether that could be done."""
    state = None if core.post_processor is None else json.loads(core.post_processor.__getstate__())
    steps: list[dict[str, Any]] = (
        [] if state is None else state["processors"] if state["type"] == "Sequence" else [state]
    )
    template = next((step for step in steps if step["type"] == "TemplateProcessing"), None)
    others = [step for step in steps if step is not template]
    if any(step["type"] != "ByteLevel" for step in others):
        return False
    template = json.loads(json.dumps(PLAIN)) if template is None else template
    change = _with if wanted else _without
    for form in ("single", "pair"):
        template[form] = change(template[form], role, token)
    if wanted:
        template["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
    processor = processors.TemplateProcessing()
    processor.__setstate__(json.dumps(template).encode())
    kept = []
    for step in others:
        level = processors.ByteLevel()
        level.__setstate__(json.dumps(step).encode())
        kept.append(level)
    core.post_processor = processors.Sequence([*kept, processor]) if kept else processor
    return True


def _with(pieces: Pieces, role: str, token: str) -> Pieces:
    """Put a token before, or behind, each text of a template."""
    made: Pieces = []
    for piece in pieces:
        if "Sequence" not in piece:
            made.append(piece)
            continue
        added = {"SpecialToken": {"id": token, "type_id": piece["Sequence"]["type_id"]}}
        made += [added, piece] if role == "bos" else [piece, added]
    return made


def _without(pieces: Pieces, role: str, token: str) -> Pieces:
    """Take a token away: the start token before the last text, the end token behind the first."""
    texts = [place for place, piece in enumerate(pieces) if "Sequence" in piece]
    within = range(texts[-1]) if role == "bos" else range(texts[0] + 1, len(pieces))
    return [
        piece
        for place, piece in enumerate(pieces)
        if place not in within or piece.get("SpecialToken", {}).get("id") != token
    ]
