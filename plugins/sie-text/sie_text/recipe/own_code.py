"""Code that comes with weights (`auto_map` in `config.json`): whether transformers' own class computes the same.

The records of architectures name those that are. Others are refused, unless the model's config ignores or runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sie_core.contracts import LoadContext, ModelLoadError
from sie_text.architectures import NONE, Records, find_architecture, translate

OPTION = "auto_map"
IGNORE = "ignore"
BASE = "AutoModel"
"""The key of `auto_map` for the base model; those for a class with a head are its `AutoModelFor…`."""

Runs = Literal["here", "elsewhere", "nowhere"]
"""Where code of the weights may run once the model's config trusts it: in the asking family, in a later family, or in
none.
"""


class OwnCodeError(ModelLoadError):
    """The weights were made for their own class, which is not run; `CONFIG`."""

    def __init__(self, message: str) -> None:
        super().__init__("CONFIG", message)


def own_class(config: Mapping[str, Any], *heads: str, records: Records = NONE) -> str | None:
    """Name the weights' own class, unless it is known to equal one of transformers'; None if there is none.

    Args:
        config: The transformer's `config.json`.
        heads: The keys of `auto_map` that count in addition to the base model's. Others do not change the results.
        records: The registered architectures.
    """
    auto_map = config.get("auto_map")
    if not isinstance(auto_map, Mapping):
        return None
    record = find_architecture(config.get("model_type"), records)
    known = record is not None and all(config.get(name) == value for name, value in record.published_if.items())
    equal = record.published if record is not None and known else frozenset()
    named = (str(auto_map[key]) for key in (BASE, *heads) if auto_map.get(key))
    return next((name for name in named if name.rpartition("--")[2] not in equal), None)


def heed_auto_map(
    context: LoadContext, config: Mapping[str, Any], *heads: str, runs: Runs, file: str = "config.json"
) -> dict[str, str]:
    """Refuse weights that were made for another class than transformers' own.

    Args:
        context: The load; its profile may ignore the code (`auto_map: ignore`), its model may trust it.
        config: See `own_class`.
        heads: See `own_class`.
        runs: Places where trusted code runs.
        file: The file of the config, for the message.

    Returns:
        The note for operators, under `auto_map`, if code is ignored or run; else nothing.

    Raises:
        ModelLoadError: `CONFIG`: a record knows that the config asks for something that no class here computes.
        OwnCodeError: The class is neither known nor ignored, nor trusted and run `here`; or it is both ignored and
        trusted.
    """
    records = NONE if context.card is None else context.card.records
    name = own_class(config, *heads, records=records)
    if name is None:
        return {}
    model_type, trusted = config.get("model_type"), context.model.config.trust_remote_code and runs != "nowhere"
    if context.model.profile.loadtime.get(OPTION) == IGNORE:
        if trusted:
            raise OwnCodeError(f"`auto_map: ignore` and `trust_remote_code: true` contradict each other over {name}.")
        return {OPTION: f"ignored, as the profile asks: {name}; transformers' own class for {model_type} serves"}
    if trusted and runs == "here":
        return {OPTION: f"{name}, code that comes with the weights, serves"}
    code = f"{file} names code that comes with the weights (`auto_map`: {name})"
    if not context.model.config.trust_remote_code:
        translate(config, records)  # which may know why transformers' class does not serve, and what does
    if trusted:
        raise OwnCodeError(f"{code}, which the model's config trusts and this family does not run.")
    remedy = (
        "This family runs no such code, also with `trust_remote_code: true`"
        if runs == "nowhere"
        else "Set `trust_remote_code: true` in the model's config to run it, if you trust it"
    )
    raise OwnCodeError(
        f"{code}, and transformers' own class for {model_type} is not known to compute the same: its numbers may be "
        f"wrong. {remedy}; or, to be served by transformers' class, set `auto_map: ignore` in a profile's loadtime "
        "options."
    )
