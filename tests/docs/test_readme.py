"""The README is followed as a newcomer would: in a clone and an empty home, command by command.

The Hub is one of this machine: its GLiNER is a tiny one that was trained on the words that the README asks about. What
takes minutes (`make test`, `make images`, the packages) is not run again here: its names are held against the code.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sie_bundle.bundles.reading import BundleFile
from sie_bundle.images.containerfile import CACHE
from sie_bundle.images.plan import Image

from sie_core import __version__
from sie_core.catalog import build_catalog, choose_family
from sie_core.catalog.info import declared_operations
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.plugins.selection import choose_device
from sie_core.settings import Settings
from tests.cache.fake_hub import files_of, run_hub
from tests.pytorch.models import write_checkpoint

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
LONGEST = 110
BOUND_S = 120.0
BLOCK = re.compile(r"^```(?P<language>sh|python)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w/-]+\.py)`[^`]*?\Z")
"""Names the file that the block below is."""
NUMBER = r"-?\d+\.\d+(?:e-?\d+)?"
DEVIATION = 0.005
"""Of a number of an answer: processors compute in float32 or in bfloat16."""
MAKE = ("make", "-o", ".light/.kernels", "-o", ".venv/.kernels")
"""What the environments are built of is taken for up to date."""
HUB = ("sentence-transformers/paraphrase-MiniLM-L3-v2", "intfloat/e5-small-v2")


def commands(body: str) -> list[tuple[str, str]]:
    """Part a block of a shell into commands, each with the comment lines below it: what it prints."""
    parts: list[tuple[str, str]] = []
    for line in body.replace("\\\n", "").splitlines():
        if line.startswith("# "):
            parts[-1] = (parts[-1][0], parts[-1][1] + line[2:] + "\n")
        else:
            parts.append((line, ""))
    return parts


def compare(shown: str, printed: str) -> None:
    """Hold what was printed against what the README shows: `...` stands for anything, numbers may differ a little."""
    numbers = re.findall(NUMBER, shown)
    pattern = re.sub(re.escape(re.escape("...")), ".*?", re.escape(" ".join(shown.split())))
    for number in numbers:
        pattern = pattern.replace(re.escape(number), f"({NUMBER})", 1)
    found = re.fullmatch(pattern, " ".join(printed.split()))
    assert found, f"the README shows\n{shown}\nprinted was\n{printed}"
    assert [float(each) for each in found.groups()] == pytest.approx([float(each) for each in numbers], abs=DEVIATION)


@contextmanager
def serving(command: str, folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """Run a server until the block ends; give its URL once it is ready."""
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-ec", command],
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # make and the shell end with it
        )
    assert process.stdout is not None
    stop = threading.Timer(BOUND_S, os.killpg, (process.pid, signal.SIGKILL))
    stop.start()
    try:
        told = next((line for line in process.stdout if line.startswith("SIE serves on ")), None)
        assert told is not None, f"{command}\n{(folder / 'server.log').read_text()}"
        yield told.split()[-1]
    finally:
        stop.cancel()
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(BOUND_S)
        process.stdout.close()


class Reader:
    """A newcomer in a clone whose environment is built, with an empty home and no registry of packages."""

    def __init__(self, home: Path, hub: str, stack: ExitStack) -> None:
        self.clone, self.url = home / "clone", ""
        self._servers = stack.enter_context(ExitStack())
        self.clone.mkdir()
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in {line.partition("/")[0] for line in listed.splitlines()}:
            (self.clone / name).symlink_to(ROOT / name)
        for name in (".light", ".venv"):
            (self.clone / name).symlink_to(sys.prefix)
        own = ("SIE_", "HF_", "XDG_", "MAKE", "VIRTUAL_ENV")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self.variables = {
            **inherited,
            "HOME": str(home),
            "HF_ENDPOINT": hub,
            "SIE_HTTP_PORT": "0",
            "SIE_RUNNER": "priority",  # a race of runners takes seconds
            "SIE_MODEL_WAIT_S": f"{BOUND_S:g}",  # a busy machine may load for longer than the default
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(home / "site"),
            "PIP_TARGET": str(home / "site"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this variable as the option's value: 0 switches isolation off
        }

    def run(self, command: list[str]) -> str:
        """Run a command to its end; return what it printed."""
        done = subprocess.run(
            command, cwd=self.clone, env=self.variables, capture_output=True, text=True, timeout=BOUND_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def shell(self, command: str) -> str:
        """Run a command where the environment is activated."""
        return self.run(["bash", "-ec", f". .light/bin/activate\n{command.replace(ADDRESS, self.url)}"])

    def serve(self, command: str) -> None:
        """Stop the server, and start another."""
        self._servers.close()
        self.url = self._servers.enter_context(serving(command, self.clone, self.variables))

    def follow(self, line: str) -> str:
        """Do as a line of a shell says; return what it printed."""
        return "".join(self._do(command) for command in line.split(" && "))

    def _do(self, command: str) -> str:
        match shlex.split(command, comments=True):
            case ["make", "serve", *named]:
                self.serve(shlex.join([*MAKE, "serve", *named]))
            case ["make", *named]:
                self.run([*MAKE, "-n", *named])
            case ["sie", "serve", *_]:
                self.serve(f". .light/bin/activate && {command}")
            case ["docker", "run", *named]:
                check_docker(named)
            case ["pip", "install", *named] if "." in named:
                check_packages(named)
            case _:
                return self.shell(command)
        return ""


def check_packages(named: list[str]) -> None:
    """Hold what pip is to install against the projects: `tests/packaging` builds and installs them."""
    projects = {}
    for folder, _, extra in (name.rstrip("]").partition("[") for name in named):
        project = projects[folder] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert not extra or extra in project["optional-dependencies"]
    needed = {re.split(r"[^\w-]", each)[0] for project in projects.values() for each in project["dependencies"]}
    assert {each for each in needed if each.startswith("sie-")} <= {each["name"] for each in projects.values()}


def check_docker(words: list[str]) -> None:
    """Hold `docker run` against the image that is built: its name, its folder of weights and its port."""
    bundle = BundleFile.read(ROOT / "bundles/default/bundle.yaml").whole
    assert words[-1] == Image(bundle, "cpu", (), "", __version__).tag
    assert words[words.index("-v") + 1].endswith(f":{CACHE}")
    assert words[words.index("-p") + 1].endswith(f":{Settings.model_fields['http_port'].default}")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Iterator[Reader]:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    home = tmp_path_factory.mktemp("home")
    tiny = write_checkpoint("bert", home / "tiny")
    with run_hub() as hub, ExitStack() as stack:
        hub.files = {"knowledgator/gliner-bi-edge-v2.0": files_of(trained), **dict.fromkeys(HUB, files_of(tiny))}
        reader = Reader(home, hub.url, stack)
        tiny.rename(reader.clone / "my-model")
        yield reader


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(BLOCK.findall(README))))
def test_the_readme_does_what_it_says(reader: Reader, number: int) -> None:
    block = list(BLOCK.finditer(README))[number]
    if named := FILE.search(README[: block.start()].rstrip()):
        path = reader.clone / named[1]
        path.parent.mkdir()
        path.write_text(block["body"])
    elif block["language"] == "python":
        shown = "\n".join(re.findall(r"^# (.*)$", block["body"], re.MULTILINE))
        compare(shown, reader.shell(f"python -c {shlex.quote(block['body'])}"))
    else:
        for command, shown in commands(block["body"]):
            printed = reader.follow(command)
            if shown:
                compare(shown, printed)


def test_a_wrong_answer_would_be_noticed() -> None:
    compare("[0.842, ...] b", "[0.8401, 3,\n4] b\n")
    for printed in ("[0.85, 3] b", "[0.842, 3] c"):
        with pytest.raises(AssertionError):
            compare("[0.842, ...] b", printed)


def test_every_block_is_followed_but_the_picture() -> None:
    others = BLOCK.sub("", README)
    assert others.count("```") == 2
    assert "HTTP ─▶" in others.split("```")[1]


def test_each_example_of_the_table_is_served_by_the_plugin_and_answers_what_the_row_says() -> None:
    settings = Settings()
    plugins = discover(settings, BUILTINS)
    catalog, device = build_catalog(settings, plugins), choose_device("cpu", plugins.device_probes, print)
    families = {report.distribution: report.registers.get("sie_model_families", ()) for report in plugins.reports}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if "CPU" in line]
    rows = [row for row in rows if len(row) == 5]
    assert len(rows) == 8
    for _, plugin, examples, answers, _ in rows:
        for example in re.findall(r"`(.+?)`", examples):
            model = catalog.resolve(example)
            assert model.config.expected is not None
            known = [family for each in plugin.split(", ") for family in families[each]]
            assert choose_family(plugins, model, model.config.expected, device).family.id in known, example
            assert ", ".join(declared_operations(model)) == answers, example


def test_each_figure_of_the_readme_has_its_place_in_the_measurements() -> None:
    measured = "".join(page.read_text() for page in (ROOT / "docs/performance").glob("*.md"))
    claims = [each for each in re.split(r"\n(?=- |\n)", README) if "docs/performance/" in each]
    figures = [figure for claim in claims for figure in re.findall(r"\d+\.\d+(?= times)", claim)]
    assert figures == re.findall(r"[\d.]+(?= times)", README)
    assert figures
    for figure in figures:
        assert f"{figure} times its own at 64 clients with single texts" in measured
    assert set(re.findall(r"\((docs/\S+\.svg)\)", README)) == {"docs/performance/throughput.svg"}


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= LONGEST
