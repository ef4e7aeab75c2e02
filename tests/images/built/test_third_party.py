"""A third party's plugin becomes a container by the commands of docs/operate/cluster/bundles.md."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sie_bundle.locks.requirements import OURS

from tests.cache import fake_hub
from tests.images.built.programs import BASE, BUILDER, RUNNER, inspect, layers, remove, run
from tests.images.built.tools import ACME, ROOT, free_port, unpacked
from tests.plugins.outside import environment
from tests.plugins.test_writing_a_plugin import blocks

pytestmark = [pytest.mark.usefixtures("registry"), pytest.mark.timeout(1500)]
CANARY = "canary-of-a-password-4711"
SECRETS = dict.fromkeys(("HTTPS_PROXY_NOTE", "HF_TOKEN", "SIE_AUTH_TOKEN"), f"https://me:{CANARY}@registry.example")
WEIGHTS, APP = -4, -1
"""Their layers, counted from the last; between them are the folders that are written to."""
PINS = ("1" * 40, "2" * 40)


def commands(title: str) -> list[str]:
    """Return the commands of a section of the page, a string a block."""
    page = (ROOT / "docs/operate/cluster/bundles.md").read_text()
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@dataclass
class Newcomer:
    """Follows the page in a folder of their own, with podman where it says docker and docker is not there."""

    folder: Path
    wheels: Path
    variables: dict[str, str]
    port: int

    def follow(self, commands: str) -> str:
        for old, new in {
            "~/sie/dist/wheels": str(self.wheels),
            "sie bundle build ./acme": f"sie bundle build ./acme --builder {BUILDER} --base {BASE}",
            "docker run": f"{RUNNER} run --no-healthcheck",
            "docker": RUNNER,
            "127.0.0.1:8080": f"127.0.0.1:{self.port}",
        }.items():
            commands = commands.replace(old, new)
        return run("bash", "-ec", commands, folder=self.folder, variables=self.variables)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory, registry: None, wheels: Path) -> Newcomer:
    """A folder and a shell of a third party, with the plugin that docs/extend/writing-a-plugin.md writes."""
    folder = tmp_path_factory.mktemp("newcomer")
    for block in blocks():
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.body)
    site = folder / "site"
    variables = environment(
        site,
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        PIP_TARGET=str(site),
        PIP_NO_DEPS="1",
        PIP_NO_BUILD_ISOLATION="0",  # pip reads this variable as the option's value: 0 switches isolation off
        **SECRETS,
    )
    return Newcomer(folder, wheels, variables, free_port())


@pytest.fixture(scope="module")
def built(newcomer: Newcomer) -> str:
    """The image, built as the page says; returns what the commands printed."""
    return newcomer.follow(commands("From a plugin to a container")[0])


@pytest.fixture
def stopped(newcomer: Newcomer) -> Iterator[None]:
    yield
    remove("acme")


def test_the_page_leads_from_a_plugin_to_an_image(built: str, newcomer: Newcomer) -> None:
    assert "acme: nothing to mend" in built
    assert f"{ACME}: built by {BUILDER}" in built
    lock = (newcomer.folder / "acme" / "pylock.cpu.toml").read_text()
    assert 'path = "wheels/sie_vowels-0.1.0-py3-none-any.whl"' in lock
    assert {name for name in OURS if f'name = "{name}"\n' in lock} == {"sie-core", "sie-sdk"}
    assert inspect(ACME)["Size"] < 345_000_000


@pytest.mark.usefixtures("built", "stopped")
def test_the_container_of_the_page_answers_and_ends(newcomer: Newcomer) -> None:
    printed = newcomer.follow(commands("From a plugin to a container")[1])
    answer, _ = json.JSONDecoder().raw_decode(printed, printed.index("{"))
    assert answer["data"][0]["embedding"] == [0.0, 1.0, 0.0, 2.0, 0.0]


@pytest.mark.usefixtures("built")
def test_no_secret_of_who_built_is_in_any_layer_or_in_the_history(newcomer: Newcomer, tmp_path: Path) -> None:
    assert newcomer.variables["HF_TOKEN"].endswith(f"{CANARY}@registry.example")
    run(RUNNER, "save", "--output", tmp_path / "image.tar", ACME)
    shutil.unpack_archive(tmp_path / "image.tar", tmp_path / "image")
    files = [file for file in (tmp_path / "image").rglob("*") if file.is_file()]
    assert len(files) > 5
    assert [file.name for file in files if CANARY.encode() in unpacked(file)] == []


@pytest.mark.skipif(BUILDER == "docker", reason="docker dates the folders of layers by the clock: none are equal")
def test_a_pin_and_a_readme_change_one_layer_each_and_nothing_below(
    built: str, newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = newcomer.folder / "acme" / "bundle.yaml", commands("From a plugin to a container")[0].splitlines()
    text, images = file.read_text(), [layers(ACME)]
    wheel, lock, build = (next(line for line in page if each in line) for each in ("pip wheel", " lock ", " build "))
    with fake_hub.run_hub() as hub:
        newcomer.variables |= {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "SIE_HF_FALLBACK": "true"}
        for pin, more in ((PINS[0], []), (PINS[1], [wheel, lock])):
            monkeypatch.setattr(fake_hub, "COMMIT", pin)
            file.write_text(text.replace("models:", f"models:\n  - {{id: org/m, revision: '{pin}', bake: true}}"))
            newcomer.follow("\n".join([*more, build]))
            images.append(layers(ACME))
            (newcomer.folder / "sie-vowels" / "README.md").write_text("# Vowels\n")
            project = newcomer.folder / "sie-vowels" / "pyproject.toml"
            project.write_text(project.read_text().replace("[project]", '[project]\nreadme = "README.md"'))
    changed = [
        [number - len(after) for number, layer in enumerate(before) if layer != after[number]]
        for before, after in itertools.pairwise(images)
    ]
    assert changed == [[WEIGHTS], [WEIGHTS, APP]]
