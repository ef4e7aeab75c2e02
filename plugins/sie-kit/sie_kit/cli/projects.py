"""Writes the distribution of a new plugin from the templates of its kind, which are files beside this module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sie_core import __version__

TEMPLATES: Final = Path(__file__).parent / "templates"
COMMON: Final = "common"
KINDS: Final = (
    "family",
    "head",
    "architecture",
    "static",
    "weights",
    "runner",
    "tier",
    "store",
    "queue",
    "postprocessor",
    "scheduler",
    "memory",
)
SUFFIX: Final = ".jinja"
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
ABOUT: Final = "about.yaml.jinja"
"""What is to be said about a kind: a summary, dependencies, how a user turns it on."""


class CannotMake(Exception):
    """No project can be written; the message says why, with the remedy."""


def make(name: str, kind: str, into: Path) -> Path:
    """Write the project `sie-NAME` into a folder of that name; return the folder.

    Raises:
        CannotMake: The name is none, or the folder exists.
    """
    if not NAME.fullmatch(name) or name.startswith("sie-"):
        raise CannotMake(
            f"{name!r} is no name of a plugin: lower case letters and digits, joined by `-`, without `sie-`"
        )
    folder = into / f"sie-{name}"
    if folder.exists():
        raise CannotMake(f"{folder} exists; remove it, or choose another name")
    option = name.replace("-", "_")
    words: dict[str, Any] = {
        "name": name,
        "module": f"sie_{option}",
        "option": option,
        "upper": option.upper(),
        "core": __version__,
        "next_major": int(__version__.partition(".")[0]) + 1,
        "options": "",
        "untyped": [],
    }
    # A kind may have templates of its own by the names of common ones.
    places = (TEMPLATES / kind, TEMPLATES / COMMON)
    templates = Environment(
        loader=FileSystemLoader(places), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    words |= yaml.safe_load(templates.get_template(ABOUT).render(words))
    names = {file.relative_to(place).as_posix() for place in places for file in place.rglob("*") if file.is_file()}
    for template in sorted(names - {ABOUT}):
        file = folder / template.removesuffix(SUFFIX).replace("package/", f"{words['module']}/").replace("NAME", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        if template.endswith(SUFFIX):
            file.write_text(templates.get_template(template).render(words), encoding="utf-8")
        else:
            file.write_bytes(next(place / template for place in places if (place / template).exists()).read_bytes())
    return folder
