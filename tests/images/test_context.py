"""The context of an image's build: whole, without network, the same bytes for the same input."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sie_bundle.images.builders import find_builder
from sie_bundle.images.plan import LARGE, layers_of
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel

from sie_core.cache import LocalTier
from sie_core.contracts import WeightRequest
from tests.cache.conftest import hub
from tests.cache.fake_hub import COMMIT, FakeHub
from tests.images.conftest import BASE, BUNDLE
from tests.images.parsing import parse

__all__ = ["hub"]
Build = Callable[..., Result]


def files_of(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def context(acme: Path, build: Build, tmp_path: Path) -> Path:
    done = build(acme, "--context", tmp_path / "context")
    assert done.exit_code == 0, done.output
    assert "sie-server:1.0.0-cpu-acme" in done.output
    return tmp_path / "context"


def test_a_context_holds_every_wheel_that_its_requirements_name_with_their_hashes(context: Path) -> None:
    lines = [line for file in (context / "requirements").iterdir() for line in file.read_text().splitlines()]
    hashes = {hashlib.sha256(file.read_bytes()).hexdigest() for file in (context / "wheels").glob("*.whl")}
    assert {line.partition(" ")[0] for line in lines} == {"sie-core==1.0.0", "acme==2.1", "library==3.0", "helper==1.0"}
    assert {line.partition("--hash=sha256:")[2] for line in lines} == hashes


def test_a_containerfile_is_what_builders_read_and_copies_what_the_plan_fills(context: Path) -> None:
    arguments, (install, image) = parse((context / "Containerfile").read_text())
    assert arguments == {"BASE": BASE}
    assert (install.base, install.name, image.base) == (BASE, "install", BASE)
    plan = json.loads((context / "plan.json").read_text())
    filled = {layer for each in plan["environments"] for layer in each["layers"]}
    copied = [step.split("/layers/")[1].partition("/")[0] for step in image.all("COPY")]
    assert set(copied) == filled | {"python", "weights", "cache"}
    assert copied[-1] == plan["app"] == "plugins"
    assert [each["prefix"] for each in plan["environments"]] == ["/opt/sie", "/opt/own"]


def test_an_image_runs_as_nobody_behind_a_first_process_and_tells_its_health(context: Path) -> None:
    _, (_, image) = parse((context / "Containerfile").read_text())
    assert image.all("USER") == ["10001:10001"]
    assert image.all("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(image.all("ENTRYPOINT")[0])[-2:] == ["/opt/sie/share/init.py", "/opt/sie/bin/sie"]
    assert json.loads(image.all("CMD")[0]) == ["serve"]
    assert "health.py" in image.all("HEALTHCHECK")[0]
    assert image.all("RUN") == []
    variables = image.pairs("ENV")
    assert variables["SIE_HTTP_HOST"] == "0.0.0.0"
    assert variables["SIE_LOG_JSON"] == "true"
    assert variables["SIE_AUTH_TOKENS_NOTE"] == "costs $5"


def test_labels_name_the_base_and_the_bytes_of_the_locks(context: Path) -> None:
    _, (_, image) = parse((context / "Containerfile").read_text())
    labels = image.pairs("LABEL")
    assert labels["org.opencontainers.image.base.digest"] == BASE.partition("@")[2]
    assert labels["org.opencontainers.image.version"] == "1.0.0-cpu-acme"
    for label, lock in (("sie.lock.sha256", "pylock.cpu.toml"), ("sie.lock.own.sha256", "pylock.cpu-own.toml")):
        assert labels[label] == hashlib.sha256((context / lock).read_bytes()).hexdigest()


def test_the_same_input_and_date_give_the_same_context_elsewhere_and_over_an_old_one(
    acme: Path, build: Build, context: Path, tmp_path: Path
) -> None:
    (context / "pylock.cuda.toml").write_text("left by an earlier one")
    (context / "requirements" / "old.txt").write_text("left by an earlier one")
    assert build(acme, "--context", tmp_path / "again").exit_code == 0
    assert build(acme, "--context", context).exit_code == 0
    assert files_of(context) == files_of(tmp_path / "again")


def test_the_date_is_that_of_the_variable(
    acme: Path, build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert build(acme, "--context", tmp_path / "c").exit_code == 0
    assert "2023-11-14T22:13:20Z" in (tmp_path / "c" / "Containerfile").read_text()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    done = build(acme, "--context", tmp_path / "c")
    assert (done.exit_code, "SOURCE_DATE_EPOCH=yesterday" in done.output) == (1, True)


def test_nothing_of_the_environment_gets_into_a_context(
    acme: Path, build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PIP_INDEX_URL", "HTTPS_PROXY", "HF_TOKEN", "SIE_AUTH_TOKEN"):
        monkeypatch.setenv(name, "https://canary-4711@registry.example/simple")
    assert build(acme, "--context", tmp_path / "c").exit_code == 0
    assert [
        file for file in (tmp_path / "c").rglob("*") if file.is_file() and b"canary-4711" in file.read_bytes()
    ] == []


def test_what_cannot_be_built_is_told_with_its_remedy(acme: Path, build: Build, tmp_path: Path) -> None:
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").touch()
    (acme / "wheels" / "acme-2.1-py3-none-any.whl").write_bytes(b"another")
    for arguments, said in (
        ((acme, "--context", other), "holds something else than a context"),
        ((acme, "--platform", "cuda", "--context", tmp_path / "c"), "--platform cuda"),
        ((acme, "--context", tmp_path / "c"), "acme-2.1-py3-none-any.whl"),
        ((acme, "--locks", tmp_path, "--context", tmp_path / "c"), "sie bundle lock"),
    ):
        done = build(*arguments)
        assert (done.exit_code, said in done.output) == (1, True), done.output
    assert (other / "cat.jpg").exists()


def test_without_a_builder_it_is_said_what_to_install(
    acme: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = build(acme)
    assert done.exit_code == 1
    assert "--context" in done.output


@pytest.mark.parametrize(("status", "found"), [(0, "docker"), (1, "podman")])
def test_docker_builds_where_its_daemon_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, found: str
) -> None:
    for name, ends in (("docker", status), ("podman", 0)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {ends}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_builder().name == found
    assert find_builder("docker").name == "docker"


def test_docker_is_told_the_file_that_it_does_not_look_for(
    acme: Path, build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "docker"
    # Its own name for the file is Dockerfile.
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in build*--file*/Containerfile*) ;; build*) exit 1 ;; create*) echo name ;; cp*) touch $3 ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = build(acme, "--builder", "docker", "--out", tmp_path)
    assert done.exit_code == 0, done.output


def test_large_wheels_and_data_have_layers_of_their_own_and_the_app_is_last() -> None:
    sizes = {
        "torch-2.0-cp311-cp311-linux_x86_64.whl": LARGE,
        "weights-1-py3-none-any.whl": LARGE,
        "small-1-py3-none-any.whl": LARGE - 1,
    }
    packages = [
        LockedPackage(
            file.split("-")[0], file.split("-")[1], LockedWheel(file, size, "0" * 64, "https://registry.example/")
        )
        for file, size in sizes.items()
    ]
    for file, size in {
        "sie_core-1-py3-none-any.whl": LARGE,
        "acme-1-py3-none-any.whl": 1,
        "cuda-1-cp311-cp311-linux_x86_64.whl": LARGE,
    }.items():
        name = file.split("-")[0].replace("_", "-")
        packages.append(LockedPackage(name, "1", LockedWheel(file, size, "0" * 64)))
    dealt = layers_of(Lock("acme", "cpu", "3.11", tuple(packages)))
    assert {name: [each.name for each in part.packages] for name, part in dealt.items()} == {
        "large": ["torch", "cuda"],
        "data": ["weights"],
        "libraries": ["small"],
        "plugins": ["sie-core", "acme"],
    }
    assert list(dealt)[-1] == "plugins"


def test_baked_weights_are_fetched_beforehand_at_their_pin(
    acme: Path, build: Build, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "SIE_HF_FALLBACK": "true"}.items():
        monkeypatch.setenv(name, value)
    (acme / "bundle.yaml").write_text(BUNDLE + f"models: [{{id: org/m, bake: true, revision: '{COMMIT}'}}]\n")
    weights = tmp_path / "context" / "weights"
    done = build(acme, "--context", weights.parent)
    assert done.exit_code == 0, done.output
    assert {each.name for each in weights.iterdir()} == {"models--org--m"}
    snapshot = weights / "models--org--m" / "snapshots" / COMMIT
    assert (snapshot / "model.safetensors").is_file()
    assert LocalTier(weights, "baked").fetch(WeightRequest("org/m", COMMIT)) == snapshot


def test_weights_that_a_config_pins_otherwise_are_not_baked(
    acme: Path, build: Build, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.yaml").write_text(f"sie_id: org/m\nhf_id: org/m\nhf_revision: '{COMMIT}'\n")
    variables = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "SIE_HF_FALLBACK": "true"}
    for name, value in {**variables, "SIE_MODELS_DIR": str(tmp_path / "models")}.items():
        monkeypatch.setenv(name, value)
    pin = "b" * 40
    (acme / "bundle.yaml").write_text(BUNDLE + f"models: [{{id: org/m, bake: true, revision: '{pin}'}}]\n")
    done = build(acme, "--context", tmp_path / "context")
    assert done.exit_code == 1, done.output
    assert f"org/m: the bundle pins {pin}, and what was fetched is {COMMIT}" in done.output
