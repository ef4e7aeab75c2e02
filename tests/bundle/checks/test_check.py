"""`sie bundle check`: each broken bundle is named with file, line and remedy, exits with 1, and raises nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from click.testing import Result
from sie_bundle.bundles.reading import BundleFile
from sie_bundle.checks.check import Surroundings, check_bundle
from sie_bundle.locks.solving import Sources
from sie_bundle.locks.wheels import read_wheels

from sie_core.defaults import BUILTINS
from sie_core.settings import Settings
from tests.bundle.checks.plugins import COMMIT
from tests.bundle.conftest import needs_uv
from tests.bundle.wheels import make_wheel

Run = Callable[..., Result]
Write = Callable[[str], Path]
GOOD = f"""\
name: acme
priority: 7
plugins:
  - acme-plugin
models:
  - acme/pinned
  - {{id: acme/claimed, revision: {COMMIT}, bake: true}}
settings:
  SIE_ACME_SPEED: fast
  SIE_MAX_BATCH_REQUESTS: 32
platforms:
  cpu: {{}}
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdef", "bcdefg", strict=True)
)

# What is put in the place of what, the line that is named, and what is said of it.
CHANGED: dict[str, tuple[str, str, int, list[str]]] = {
    "unknown plugin": ("acme-plugin", "acme-plugim", 4, ["no plugin 'acme-plugim'", "Did you mean acme-plugin"]),
    "distribution without a plugin": ("- acme-plugin", "- acme-plain", 4, ["no plugin 'acme-plain'", "install it"]),
    "clashing ids": (
        "- acme-plugin",
        "- acme-plugin\n  - acme-clash",
        5,
        ["'acme'", "acme-plugin", "uninstall one"],
    ),
    "a clash through what a plugin needs": (
        "- acme-plugin",
        "- acme-plugin\n  - acme-needs-clash",
        4,
        ["'acme'", "acme-clash", "uninstall one"],
    ),
    "contract too new": ("- acme-plugin", "- acme-future", 4, ["written for sie.family/99", "serves sie.family/1"]),
    "a plugin that cannot be imported": (
        "- acme-plugin",
        "- acme-broken",
        4,
        ["is broken", "a_library_that_is_not_there"],
    ),
    "plugins that need one another": ("- acme-plugin", "- acme-egg", 4, ["acme-egg -> acme-hen -> acme-egg"]),
    "a plugin twice": ("- acme-plugin", "- acme-plugin\n  - acme_plugin", 5, ["again", "leave one out"]),
    "bad range": (
        "- acme-plugin",
        "- {distribution: acme-plugin, range: newest}",
        4,
        ["'newest' is no range", ">=1.2,<2"],
    ),
    "installed outside the range": (
        "- acme-plugin",
        '- {distribution: acme-plugin, range: ">=2"}',
        4,
        ["acme-plugin >=2 is wanted", "1.4.0", "change the range"],
    ),
    "GPU alone on cpu": ("- acme-plugin", "- acme-plugin\n  - acme-gpu", 5, ["serves cuda alone", "platforms: [cuda]"]),
    "a path as a plugin": ("- acme-plugin", "- ../acme-plugin", 4, ["'../acme-plugin' names no plugin", "no path"]),
    "a URL as a plugin": ("- acme-plugin", "- 'acme @ https://x.example'", 4, ["names no plugin"]),
    "an option as a plugin": ("- acme-plugin", "- '--index-url=https://x.example'", 4, ["names no plugin"]),
    "unknown model": ("acme/pinned", "acme/pined", 6, ["acme/pined", "Did you mean acme/pinned", "SIE_MODELS_DIR"]),
    "a model nobody claims": (
        "acme/pinned",
        "acme/of-nobody",
        6,
        ["no plugin", "claims acme/of-nobody", "leave the model out"],
    ),
    "a family nobody registers": (
        "acme/pinned",
        "acme/of-others",
        6,
        ["'strangers'", "no plugin of the bundle registers"],
    ),
    "a path as a model": ("acme/pinned", "acme/../../etc", 6, ["no '..'"]),
    "a pin that is no hash": (COMMIT, "v1.0", 7, ["'v1.0' is no pin", "40 hex digits"]),
    "a pin in capitals": (COMMIT, COMMIT.upper(), 7, ["is no pin"]),
    "two pins": (COMMIT, "f" * 40, 7, ["the bundle pins ffff", "make them one"]),
    "baked without a pin": (f"acme/claimed, revision: {COMMIT}", "acme/loose", 7, ["baked and unpinned", "`revision`"]),
    "many models baked": (f"acme/claimed, revision: {COMMIT}", "'*'", 7, ["stands for many models"]),
    "unknown setting": (
        "SIE_MAX_BATCH_REQUESTS",
        "SIE_MAX_BATCH_REQUEST",
        10,
        ["no setting", "Did you mean SIE_MAX_BATCH_REQUESTS"],
    ),
    "a setting out of range": ("REQUESTS: 32", "REQUESTS: many", 10, ["SIE_MAX_BATCH_REQUESTS='many'", "integer"]),
    "a plugin's setting of another value": ("SPEED: fast", "SPEED: warp", 9, ["'warp'", "slow, fast"]),
    "a secret in a setting": (
        "SIE_MAX_BATCH_REQUESTS: 32",
        "SIE_AUTH_TOKEN: hush",
        10,
        ["is a secret", "when the image is started"],
    ),
    "a variable of others": ("SIE_MAX_BATCH_REQUESTS", "LD_PRELOAD", 10, ["LD_PRELOAD"]),
    "an override without reason": (
        "settings:",
        "overrides: [{package: numbers, spec: '>=5'}]\nsettings:",
        8,
        ["needs a `reason`"],
    ),
    "an override that expired": (
        "settings:",
        "overrides: [{package: numbers, spec: '>=5', reason: it works with it, until: 2020-01-01}]\nsettings:",
        8,
        ["meant until 2020-01-01", "leave it out, or give a later day"],
    ),
    "an override of a path": (
        "settings:",
        "overrides: [{package: numbers, spec: '@ file:///etc/x.whl', reason: it works with it}]\nsettings:",
        8,
        ["is no range of versions"],
    ),
    "an unknown platform": ("  cpu:", "  tpu:", 12, ["'cpu' or 'cuda'"]),
    "a base without a digest": ("cpu: {}", "cpu: {base: 'python:3.11'}", 12, ["no image by digest", "sha256"]),
    "an index with a password": (
        "cpu: {}",
        "cpu: {index: 'https://me:hush@x.example/'}",
        12,
        ["user or password", "netrc"],
    ),
    "an old Python": ("name: acme", 'name: acme\npython: "3.9"', 2, ["'3.9' is no version of Python", "3.11"]),
    "a number as Python": ("name: acme", "name: acme\npython: 3.11", 2, ["3.11", "string"]),
    "a path as a name": ("name: acme", "name: ../acme", 1, ["name: '../acme'"]),
    "an environment of a path": (
        "settings:",
        "environments: {../x: {requires: [y]}}\nsettings:",
        8,
        ["environments.../x"],
    ),
    "an environment from a URL": (
        "settings:",
        "environments: {x: {requires: ['y @ https://z.example/y.whl']}}\nsettings:",
        8,
        ["names a URL"],
    ),
    "an unknown field": ("priority: 7", "prioritty: 7", 2, ["`prioritty` is no field", "Did you mean priority"]),
    "a field of others": ("priority: 7", "engine: candle", 2, ["`engine` is derived"]),
    "a key twice": ("priority: 7", "priority: 7\nname: other", 3, ["'name' is given twice"]),
}
WHOLE: dict[str, tuple[str, int, list[str]]] = {
    "a YAML bomb": (BOMB, 1, ["its aliases expand to more than", "write fewer"]),
    "an alias that holds itself": ("name: acme\nplugins: &a [*a]\n", 2, ["an alias stands for a value that holds it"]),
    "a tag that runs code": (
        "name: acme\nplugins: !!python/object/apply:os.system [id]\n",
        2,
        ["not valid YAML", "python/object"],
    ),
    "nothing": ("", 1, ["a bundle is a map of fields"]),
    "a list": ("- acme", 1, ["a bundle is a map of fields, not list"]),
    "no end of nesting": ("plugins: " + "[" * 5000, 1, ["nests too deep"]),
    "no YAML": ("name: acme\nplugins: [acme-plugin\n", 3, ["not valid YAML"]),
    "serves nothing": ("name: acme\npriority: 3\n", 1, ["serves nothing", "name a plugin or a model"]),
}


def is_told(done: Result, where: str, said: list[str]) -> None:
    assert done.exit_code == 1, done.output
    line = next(
        (each for each in done.output.splitlines() if each.removeprefix("Error: ").startswith(f"{where}: ")), ""
    )
    assert line, done.output
    for part in said:
        assert part in line
    assert "Traceback" not in done.output


def test_at_least_thirty_broken_bundles_are_tried() -> None:
    assert len(CHANGED) + len(WHOLE) >= 30


def test_the_bundle_that_they_are_made_of_is_right(sie_bundle: Run, bundle: Write) -> None:
    done = sie_bundle("check", bundle(GOOD), "--no-solve")
    assert (done.exit_code, "nothing to mend" in done.output) == (0, True), done.output
    assert f"whether {COMMIT} is a commit of acme/claimed was not checked" in done.output


@pytest.mark.parametrize("case", CHANGED)
def test_a_broken_bundle_is_named_with_line_and_remedy(sie_bundle: Run, bundle: Write, case: str) -> None:
    old, new, line, said = CHANGED[case]
    assert GOOD.count(old) == 1
    folder = bundle(GOOD.replace(old, new))
    is_told(sie_bundle("check", folder, "--no-solve"), f"{folder}/bundle.yaml:{line}", said)


@pytest.mark.parametrize("case", WHOLE)
def test_a_file_that_is_no_bundle_is_named_with_its_line(sie_bundle: Run, bundle: Write, case: str) -> None:
    text, line, said = WHOLE[case]
    folder = bundle(text)
    is_told(sie_bundle("check", folder, "--no-solve"), f"{folder}/bundle.yaml:{line}", said)


@pytest.mark.parametrize(
    ("other", "line", "said"),
    [
        ("{name: acme, priority: 8, plugins: [x]}", 1, "'acme' is the name of"),
        ("{name: other, priority: 7, plugins: [x]}", 2, "other has the priority 7 too"),
        ("{name: other, priority: 8, default: true, plugins: [x]}", 3, "other is the default already"),
    ],
)
def test_a_bundle_is_compared_with_those_beside_it(
    sie_bundle: Run, bundle: Write, tmp_path: Path, other: str, line: int, said: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/bundle.yaml").write_text(other)
    folder = bundle(GOOD.replace("priority: 7", "priority: 7\ndefault: true"))
    is_told(sie_bundle("check", folder, "--no-solve"), f"{folder}/bundle.yaml:{line}", [said])


@pytest.mark.parametrize("name", ["../../etc", "./gone", "gone", "a b", "default/../default", "", "\x00", "-"])
def test_a_name_that_leads_to_no_bundle_is_refused(
    sie_bundle: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SIE_BUNDLES_DIR", str(tmp_path))
    done = sie_bundle("check", "--no-solve", "--", name)
    assert done.exit_code == 1
    assert "no bundle" in done.output or "no such bundle" in done.output


def test_a_plugin_at_hand_as_a_wheel_is_found_and_its_contract_read(
    sie_bundle: Run, bundle: Write, tmp_path: Path
) -> None:
    for name, stated in (("outside", "('sie.family/1',)"), ("outside-late", "('sie.family/7',)")):
        module = {f"{name.replace('-', '_')}/plugin.py": f"INTERFACES = {stated}\nraise SystemExit\n"}
        make_wheel(
            tmp_path / "at-hand", name, "1.0", plugins={name: f"{name.replace('-', '_')}.plugin"}, modules=module
        )
    done = sie_bundle("check", bundle("plugins:\n  - outside"), "--no-solve", "--wheels", tmp_path / "at-hand")
    assert done.exit_code == 0
    assert "note: outside is at hand as a wheel" in done.output
    folder = bundle("plugins:\n  - outside-late")
    done = sie_bundle("check", folder, "--no-solve", "--wheels", tmp_path / "at-hand")
    is_told(done, f"{folder}/bundle.yaml:2", ["was written for sie.family/7", "serves sie.family/1"])


def versions(folder: Path, ours: Path, others: Path) -> list[str]:
    """Check a bundle with its versions, as far as wheels in folders solve them."""
    sources = Sources(read_wheels(ours), (others,), no_registry=True)
    around = Surroundings(Settings(), tuple(BUILTINS), sources, date(2026, 1, 1))
    file = BundleFile.read(folder / "bundle.yaml")
    return [str(each).removeprefix(str(folder)) for each in check_bundle(file, around) if not each.note]


@needs_uv
def test_versions_that_cannot_be_had_together_are_told_and_an_override_that_is_not_needed_too(
    bundle: Write, ours: Path, others: Path
) -> None:
    conflict = "plugins:\n  - acme-library\n  - acme-other-library\n"
    override = "overrides:\n  - {package: numbers, spec: '>=5.24', reason: its tests pass with 5.24 too}\n"
    (found,) = versions(bundle(conflict), ours, others)
    assert found.startswith("/bundle.yaml:1: no versions fulfil it all on cpu:")
    assert "acme-library" in found
    assert "acme-other-library" in found
    assert len(found.splitlines()) <= 5
    assert versions(bundle(conflict + override), ours, others) == []
    needless = "plugins:\n  - acme-library\n" + override
    (found,) = versions(bundle(needless), ours, others)
    assert found.startswith("/bundle.yaml:4: the override of numbers is no longer needed on cpu")
    (found,) = versions(bundle("plugins:\n  - acme-plugin\n" + override), ours, others)
    assert found.startswith("/bundle.yaml:4: nothing on cpu asks for numbers")
    left_out = "overrides:\n  - {package: numbers, spec: none, reason: nothing that is served imports it}\n"
    assert versions(bundle("plugins:\n  - acme-library\n" + left_out), ours, others) == []
    (found,) = versions(bundle("plugins:\n  - acme-plugin\n" + left_out), ours, others)
    assert found.startswith("/bundle.yaml:4: nothing on cpu asks for numbers")
