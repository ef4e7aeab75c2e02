"""`sie bundle lock`: what it writes from a bundle and folders of wheels, and what it never takes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sie_bundle.locks.lock import read_lock
from sie_bundle.locks.wheels import sha256_of

from tests.bundle.conftest import needs_uv
from tests.bundle.wheels import make_wheel, serve_index

pytestmark = needs_uv
TORCH_INDEX = [("torch", "2.13.0+cpu"), ("torch", "2.14.0+cpu"), ("numbers", "5.99.0")]
"""What an index of torch holds: it may offer more than torch."""
Run = Callable[..., Result]
Write = Callable[[str], Path]


def folders(ours: Path, others: Path) -> list[object]:
    return ["--wheels", ours, "--find-links", others, "--no-registry"]


def test_a_lock_names_every_wheel_with_hash_and_size_and_is_the_same_the_second_time(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    folder = bundle("plugins: [{distribution: pytorch, extras: [minilm]}]")
    done = sie_bundle("lock", f"{folder}", *folders(ours, others))
    assert (done.exit_code, done.output.count("6 packages")) == (0, 1), done.output
    lock = read_lock(folder / "pylock.cpu.toml")
    assert {each.name: each.version for each in lock.packages} == {
        "numbers": "5.24.0",
        "sie-core": "1.0.0",
        "sie-pytorch": "1.0.0",
        "sie-sdk": "1.0.0",
        "sie-text": "1.0.0",
        "weights": "0.1",
    }
    for package in lock.packages:
        file = next(place / package.wheel.file for place in (ours, others) if (place / package.wheel.file).exists())
        assert package.wheel.size == file.stat().st_size
    first = (folder / "pylock.cpu.toml").read_bytes()
    assert str(ours).encode() not in first
    assert b"/tmp" not in first
    assert tomllib.loads(first.decode())["lock-version"] == "1.0"
    for options in ([], ["--upgrade"]):
        assert sie_bundle("lock", folder, *folders(ours, others), *options).exit_code == 0
        assert (folder / "pylock.cpu.toml").read_bytes() == first


def test_a_registrys_distribution_of_our_name_is_never_taken(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    make_wheel(others, "sie-sdk", "9.0.0")
    make_wheel(others, "sie-core", "9.0.0", ["sie-sdk>=9"])
    folder = bundle("plugins: [pytorch]")
    assert sie_bundle("lock", folder, *folders(ours, others)).exit_code == 0
    locked = {each.name: each for each in read_lock(folder / "pylock.cpu.toml").packages}
    assert (locked["sie-sdk"].version, locked["sie-core"].version) == ("1.0.0", "1.0.0")
    assert locked["sie-sdk"].wheel.url is None


def test_what_asks_for_a_distribution_of_ours_that_is_not_at_hand_is_refused(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    make_wheel(others, "sie-nats", "9.0.0")
    make_wheel(others, "acme-plugin", "1.0.0", ["sie-nats"])
    folder = bundle("plugins:\n  - acme-plugin")
    done = sie_bundle("lock", folder, *folders(ours, others))
    assert done.exit_code == 1
    assert "asks for sie-nats, which is of this project" in done.output
    assert not (folder / "pylock.cpu.toml").exists()
    for name in ("nats", "sie-nats"):
        done = sie_bundle("lock", bundle(f"plugins: [{name}]"), *folders(ours, others))
        assert done.exit_code == 1
        assert "no wheel of sie-nats is at hand" in done.output


def test_a_plugin_from_a_registry_gets_our_wheels_for_what_it_needs_of_ours(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    make_wheel(others, "acme-plugin", "1.4.0", ["sie-text>=1"])
    make_wheel(others, "acme-plugin", "2.0.0", ["sie-text>=1"])
    make_wheel(others, "sie-text", "9.0.0")
    folder = bundle('plugins: [{distribution: acme-plugin, range: "<2"}]')
    assert sie_bundle("lock", folder, *folders(ours, others)).exit_code == 0
    locked = {each.name: each.version for each in read_lock(folder / "pylock.cpu.toml").packages}
    assert locked == {"acme-plugin": "1.4.0", "sie-core": "1.0.0", "sie-sdk": "1.0.0", "sie-text": "1.0.0"}


def test_a_conflict_is_told_in_five_lines_that_name_both_sides_and_an_override_solves_it(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    folder = bundle("plugins:\n  - pytorch\n  - old-reader\n")
    done = sie_bundle("lock", folder, *folders(ours, others))
    assert done.exit_code == 1
    lines = done.output.strip().splitlines()
    assert len(lines) <= 5
    assert f"{folder}/bundle.yaml:1: " in lines[0]
    assert "old-reader wants numbers >=4.51.3,<5.17" in done.output
    assert "sie-pytorch 1.0.0 wants numbers >=5.23,<6" in done.output
    assert "`overrides`" in lines[-1]
    assert "two bundles" in lines[-1]
    override = 'overrides: [{package: numbers, spec: ">=5.23,<6", reason: old-reader passes its tests with it}]\n'
    bundle(f"plugins:\n  - pytorch\n  - old-reader\n{override}")
    done = sie_bundle("lock", folder, *folders(ours, others))
    assert done.exit_code == 0, done.output
    assert "old-reader" in {each.name for each in read_lock(folder / "pylock.cpu.toml").packages}


def test_an_override_leaves_a_library_out_and_what_it_alone_needs(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    make_wheel(others, "weights-package", "1.0", ["heavy-library"])
    make_wheel(others, "heavy-library", "1.0", ["heavy-part"])
    make_wheel(others, "heavy-part", "1.0")
    override = "overrides: [{package: heavy-library, spec: none, reason: the files of its weights alone are read}]\n"
    folder = bundle(f"plugins:\n  - weights-package\n{override}")
    done = sie_bundle("lock", folder, *folders(ours, others))
    assert done.exit_code == 0, done.output
    locked = {each.name for each in read_lock(folder / "pylock.cpu.toml").packages}
    assert locked == {"sie-core", "sie-sdk", "weights-package"}
    assert sie_bundle("lock", folder, *folders(ours, others), "--check").exit_code == 0


def test_a_wheel_of_ours_outside_the_bundles_range_is_refused(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    folder = bundle('plugins:\n  - {distribution: sie-pytorch, range: ">=2"}')
    done = sie_bundle("lock", folder, *folders(ours, others))
    assert done.exit_code == 1
    assert "bundle.yaml:2: sie-pytorch >=2 is wanted, and sie_pytorch-1.0.0" in done.output


def test_an_environment_of_its_own_has_a_lock_of_its_own(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    folder = bundle("{plugins: [pytorch], environments: {reader: {requires: [old-reader==0.2.29]}}}")
    assert sie_bundle("lock", folder, *folders(ours, others)).exit_code == 0
    lock = read_lock(folder / "pylock.cpu-reader.toml")
    assert {each.name: each.version for each in lock.packages} == {"numbers": "5.16.0", "old-reader": "0.2.29"}
    assert lock.environment == "reader"


def test_versions_locked_before_stay_until_an_upgrade_and_a_check_tells_what_differs(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path
) -> None:
    folder = bundle("plugins: [pytorch]")
    arguments = ["lock", folder, *folders(ours, others)]
    assert sie_bundle(*arguments, "--check").exit_code == 1
    assert sie_bundle(*arguments).exit_code == 0
    make_wheel(others, "numbers", "5.25.0")
    assert sie_bundle(*arguments, "--check").exit_code == 0
    assert sie_bundle(*arguments).exit_code == 0
    locked = folder / "pylock.cpu.toml"
    assert 'version = "5.24.0"' in locked.read_text()
    assert sie_bundle(*arguments, "--upgrade").exit_code == 0
    assert 'version = "5.25.0"' in locked.read_text()
    make_wheel(ours, "sie-sdk", "1.0.0", ["numbers"])
    done = sie_bundle(*arguments, "--check")
    assert done.exit_code == 1
    assert "~ sie-sdk 1.0.0: another wheel" in done.output


def test_a_date_leaves_out_what_came_later_and_is_kept_by_the_lock(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = others / "numbers-5.23.0-py3-none-any.whl", others / "numbers-5.24.0-py3-none-any.whl"
    folder = bundle("plugins: [pytorch]")
    with serve_index({old: "2026-01-01", new: "2026-06-01"}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        done = sie_bundle("lock", folder, "--wheels", ours, "--exclude-newer", "2026-03-01")
        assert done.exit_code == 0, done.output
        locked = {each.name: each for each in read_lock(folder / "pylock.cpu.toml").packages}
        assert locked["numbers"].version == "5.23.0"
        assert locked["numbers"].wheel.url == url.replace("/simple", f"/files/{old.name}")
        assert locked["numbers"].wheel.size == old.stat().st_size
        assert sie_bundle("lock", folder, "--wheels", ours, "--check").exit_code == 0
        assert sie_bundle("lock", folder, "--wheels", ours, "--upgrade").exit_code == 0
        assert 'version = "5.24.0"' in (folder / "pylock.cpu.toml").read_text()
    assert sie_bundle("lock", folder, "--wheels", ours, "--exclude-newer", "yesterday").exit_code == 1


def test_torch_is_exact_and_comes_from_the_platforms_index_and_nothing_else_does(
    sie_bundle: Run, bundle: Write, ours: Path, others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_torch = [make_wheel(tmp_path / "torch", name, version) for name, version in TORCH_INDEX]
    numbers = others / "numbers-5.24.0-py3-none-any.whl"
    foreign = make_wheel(tmp_path / "foreign", "torch", "2.13.0+cpu", modules={"torch/more.py": ""})
    with (
        serve_index({numbers: "2026-01-01", foreign: "2026-01-01"}) as registry,
        serve_index(dict.fromkeys(of_torch, "2026-01-01")) as index,
    ):
        monkeypatch.setenv("UV_DEFAULT_INDEX", registry)
        folder = bundle(f'plugins: [pytorch]\nplatforms: {{cpu: {{torch: 2.13.0+cpu, index: "{index}"}}}}')
        done = sie_bundle("lock", folder, "--wheels", ours)
        assert done.exit_code == 0, done.output
        locked = {each.name: each for each in read_lock(folder / "pylock.cpu.toml").packages}
        assert locked["numbers"].version == "5.24.0"
        assert locked["torch"].version == "2.13.0+cpu"
        assert locked["torch"].wheel.sha256 == sha256_of(of_torch[0])
        assert sie_bundle("lock", folder, "--wheels", ours, "--index", "none").exit_code == 0
        locked = {each.name: each for each in read_lock(folder / "pylock.cpu.toml").packages}
        assert locked["torch"].wheel.sha256 == sha256_of(foreign)
