"""`docs/extend/writing-a-plugin.md` is followed as a reader would: files written, commands run, output compared."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.plugins.outside import environment, run, server

PAGE = Path(__file__).parents[2] / "docs/extend/writing-a-plugin.md"
ADDRESS = "http://127.0.0.1:8080"
BLOCK = re.compile(r"(?:^`(?P<file>[\w./-]+)`\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    file: str | None
    language: str
    body: str


def blocks() -> list[Block]:
    return [Block(**found.groupdict()) for found in BLOCK.finditer(PAGE.read_text())]


class Reader:
    """Follows the page in an empty folder; what pip installs stays in that folder too."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.printed = ""
        self.url = ADDRESS
        self._stack = stack
        site = folder / "site"
        self._variables = environment(
            site,
            PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            PIP_TARGET=str(site),
            PIP_UPGRADE="1",
            PIP_NO_INDEX="1",
            PIP_NO_DEPS="1",
            PIP_NO_BUILD_ISOLATION="0",  # pip reads this variable as the option's value: 0 switches isolation off
            SIE_PLUGINS_BLOCKED="pytorch",
        )

    def follow(self, block: Block) -> None:
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body)
        elif block.language == "sh" and block.body.startswith("sie serve "):
            arguments = block.body.split()[2:]
            self.url = self._stack.enter_context(server(arguments, self.folder, self._variables))
        elif block.language in ("sh", "python"):
            shell = ["bash", "-ec"] if block.language == "sh" else [sys.executable, "-c"]
            done = run([*shell, block.body.replace(ADDRESS, self.url)], self.folder, self._variables)
            assert done.returncode == 0, f"{block.body}\n{done.stdout}\n{done.stderr}"
            self.printed = done.stdout
        else:
            self.compare(block)

    def compare(self, block: Block) -> None:
        """Hold what was printed last against a block of output, where `...` stands for anything."""
        pieces = [re.escape(" ".join(piece.split())) for piece in block.body.split("...")]
        printed = " ".join(self.printed.split())
        assert re.fullmatch(" ?.*? ?".join(pieces), printed), (
            f"the page shows\n{block.body}\nprinted was\n{self.printed}"
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with ExitStack() as stack:
        yield Reader(tmp_path_factory.mktemp("newcomer"), stack)


@pytest.mark.parametrize(
    "number", range(len(blocks())), ids=lambda n: f"{n}-{blocks()[n].file or blocks()[n].language}"
)
def test_the_page_does_what_it_says(reader, number):
    reader.follow(blocks()[number])


def test_the_page_writes_files_runs_commands_and_shows_output():
    kinds = [block.language if block.file is None else "file" for block in blocks()]

    assert kinds.count("file") == 7
    assert kinds.count("sh") == 7
    assert kinds.count("text") + kinds.count("json") == 7
    assert "```" not in BLOCK.sub("", PAGE.read_text())


def test_a_wrong_page_would_be_noticed(reader):
    reader.printed = "[2. 4. 0. 2. 0.]\n"

    reader.compare(Block(None, "text", "[2. ... 0.]\n"))
    with pytest.raises(AssertionError, match="the page shows"):
        reader.compare(Block(None, "text", "[2. 4. 1. 2. 0.]\n"))
