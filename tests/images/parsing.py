"""Reads a Containerfile as builders do, and says what they would refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WORDS = ["ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM"]
WORDS += ["HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER", "WORKDIR"]
PAIR = re.compile(r'([A-Za-z0-9_.]+)="((?:[^"\\]|\\.)*)"\s*')


@dataclass
class Stage:
    base: str
    name: str | None
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [value for each, value in self.steps if each == word]

    def pairs(self, word: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for value in self.all(word):
            end = 0
            for match in PAIR.finditer(value):
                assert match.start() == end, f"{word}: {value[end:]!r} is no NAME=VALUE"
                found[match[1]], end = json.loads(f'"{match[2]}"'.replace("\\$", "$")), match.end()
            assert end == len(value), f"{word}: {value[end:]!r} is no NAME=VALUE"
        return found


def instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, value = line.strip().partition(" ")
            assert word in WORDS, f"no instruction: {line!r}"
            yield word, re.sub(r"\s+", " ", value).strip() if word in {"ENV", "LABEL"} else value.strip()


def parse(text: str) -> tuple[dict[str, str], list[Stage]]:
    """Return the arguments before the first stage, and the stages; every reference is to something before it."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for word, value in instructions(text):
        if word == "FROM":
            base, _, name = value.partition(" AS ")
            variable = re.fullmatch(r"\$\{(\w+)\}", base)
            assert variable is None or variable[1] in arguments, f"FROM {base}: no such argument"
            stages.append(Stage(arguments[variable[1]] if variable else base, name or None))
        elif word == "ARG" and not stages:
            name, _, default = value.partition("=")
            arguments[name] = default
        else:
            assert stages, f"{word} before the first FROM"
            if word == "COPY" and (source := re.search(r"--from=(\S+)", value)):
                assert source[1] in {stage.name for stage in stages[:-1]}, f"COPY from {source[1]}: no such stage"
            if word in {"CMD", "ENTRYPOINT", "RUN"}:
                assert all(isinstance(each, str) for each in json.loads(value)), f"{word} {value}: no list"
            stages[-1].steps.append((word, value))
    return arguments, stages
