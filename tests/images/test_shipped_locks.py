"""The bundles that ship, locked against a registry: the same bytes twice, and nothing of ours from there.

Solving reads metadata alone, so no wheel of a registry is downloaded; where none answers, this is skipped, visibly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sie_bundle.building import build_wheels
from sie_bundle.cli import command
from sie_bundle.locks.lock import read_lock
from sie_bundle.locks.requirements import OURS

from tests.bundle.wheels import make_wheel

pytestmark = [pytest.mark.usefixtures("registry"), pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
DATE = "2026-11-20"
LARGEST = 3_600_000_000
"""Bytes of the wheels of `default` with CUDA."""
LOCKS = [
    ("cpu", "cpu"),
    ("default", "cpu"),
    ("default", "cuda"),
    ("gliner", "cpu"),
    ("gliner", "cuda"),
    ("sglang", "cuda"),
]
Lock = Callable[..., Result]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of a copy of the checkout, that of sie-cpu without kernels: no solver looks into it.

    A build that compiles none removes those that are there, which other tests, and whoever serves next, run.
    """
    if given := os.environ.get("SIE_TEST_WHEELS"):
        return Path(given)
    folder, kernels = tmp_path_factory.mktemp("built"), set(ROOT.glob("plugins/*/*/kernels_*.so"))
    shutil.copytree(ROOT, folder / "checkout", ignore=shutil.ignore_patterns(".*", "*.so", "__pycache__", "tests"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "no-compiler")
        build_wheels(folder / "checkout", folder / "wheels")
    assert set(ROOT.glob("plugins/*/*/kernels_*.so")) == kernels
    return folder / "wheels"


@pytest.fixture
def lock(wheels: Path) -> Lock:
    """Run `sie bundle lock` with the ordinary index for torch too: PyTorch's own is not everywhere."""

    def run(*arguments: object) -> Result:
        options = ["--wheels", wheels, "--index", "none", "--exclude-newer", DATE]
        return CliRunner().invoke(command, ["lock", *map(str, [*arguments, *options])])

    return run


def torch_of_the_index(bundle: Path, name: str) -> Path:
    """Write a bundle that ships with the torch that the ordinary index has: `+cpu` is of PyTorch's own."""
    folder = bundle / name
    folder.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "bundles" / name / "bundle.yaml").read_text()
    (folder / "bundle.yaml").write_text(text.replace("2.13.0+cpu", "2.13.0"))
    return folder


@pytest.mark.parametrize(("name", "platform"), LOCKS)
def test_a_bundle_that_ships_is_locked_to_the_same_bytes_twice(
    lock: Lock, tmp_path: Path, name: str, platform: str
) -> None:
    # The plugin of `sglang` is not in this checkout yet: its environment alone is locked.
    more = ["--environment", "sglang"] if name == "sglang" else []
    folder, written = torch_of_the_index(tmp_path, name), []
    for out in ("one", "two"):
        done = lock(folder, "--platform", platform, "--out", tmp_path / out, *more)
        assert done.exit_code == 0, done.output
        (file,) = (tmp_path / out).iterdir()
        written.append(file.read_bytes())
    assert written[0] == written[1]
    found = read_lock(file)
    ours = {each.name for each in found.packages if each.name in OURS}
    assert all((each.wheel.url is None) == (each.name in ours) for each in found.packages)
    assert ("sie-core" in ours) == (name != "sglang")
    if name == "default" and platform == "cuda":
        assert found.size <= LARGEST


def test_a_plugin_with_gliners_own_library_beside_ours_is_told_in_five_lines_and_solved_by_an_override(
    lock: Lock, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "others", "acme-reader", "1.0", ["gliner==0.2.29"], plugins={"acme-reader": "acme_reader"})
    folder = tmp_path / "acme"
    folder.mkdir()
    text = "plugins: [pytorch, acme-reader]\nplatforms: {cpu: {torch: 2.13.0}}\n"
    (folder / "bundle.yaml").write_text(text)
    done = lock(folder, "--find-links", tmp_path / "others")
    lines = done.output.strip().splitlines()
    assert (done.exit_code, len(lines) <= 5) == (1, True), done.output
    assert "gliner 0.2.29 wants transformers" in done.output
    assert "sie-pytorch 1.0.0 wants transformers >=5.23" in done.output
    override = "overrides: [{package: transformers, spec: '>=5.23,<6', reason: its tests pass with 5.23 too}]\n"
    (folder / "bundle.yaml").write_text(text + override)
    done = lock(folder, "--find-links", tmp_path / "others")
    assert done.exit_code == 0, done.output
    assert {"gliner", "acme-reader", "sie-pytorch"} <= {
        each.name for each in read_lock(folder / "pylock.cpu.toml").packages
    }
