"""Fills the layers of an image: `python3 -m inside.install CONTEXT LAYERS`, in the build's stage of that name.

Nothing is fetched: the context holds every wheel, and each is held against the hash of its lock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .bytecode import compile_layers
from .pruning import prune
from .records import site_packages, update_records
from .sbom import write_sbom

SKELETON = "python"
"""The layer of the environment's own files: it never changes before the base does."""


def install(context: Path, layers: Path) -> None:
    """Install, prune and compile what `plan.json` names, each of its layers into a folder of `layers`."""
    plan = json.loads((context / "plan.json").read_text(encoding="utf-8"))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if plan["python"] != here:
        sys.exit(
            f"the base image has Python {here}, and the bundle is locked for {plan['python']}: name another --base"
        )
    for environment in plan["environments"]:
        _environment(context, layers, environment)
    folders = sorted(each for each in layers.iterdir() if each.is_dir())
    for folder in folders:
        prune(folder)
    compile_layers(folders)
    for folder in folders:
        update_records(folder)
    _metadata(context, layers, plan)
    for name in ("weights", "cache"):
        (layers / name).mkdir(exist_ok=True)
    if (context / "weights").is_dir():
        shutil.copytree(context / "weights", layers / "weights", dirs_exist_ok=True, symlinks=True)
    for each in _below(layers):
        os.utime(each, (plan["epoch"], plan["epoch"]), follow_symlinks=False)


def _environment(context: Path, layers: Path, environment: dict[str, Any]) -> None:
    prefix = Path(environment["prefix"])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    shutil.copytree(prefix, layers / SKELETON / prefix.relative_to("/"), symlinks=True)
    pip = next((context / "tools").glob("pip-*.whl")) / "pip"
    for name, requirements in environment["layers"].items():
        command: list[str | Path] = [
            prefix / "bin" / "python",
            pip,
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--require-hashes",
        ]
        command += ["--only-binary", ":all:", "--no-compile", "--no-cache-dir", "--no-warn-script-location"]
        command += ["--disable-pip-version-check", "--root-user-action", "ignore", "--find-links", context / "wheels"]
        command += ["--root", layers / name, "--requirement", context / requirements]
        # Configuration of whoever builds has no part here.
        subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull})
        (layers / name).mkdir(exist_ok=True)


def _metadata(context: Path, layers: Path, plan: dict[str, Any]) -> None:
    share = layers / plan["app"] / "opt" / "sie" / "share"
    share.mkdir(parents=True)
    for file in ("init.py", "health.py"):
        shutil.copyfile(context / "inside" / file, share / file)
    for lock in sorted(context.glob("pylock.*.toml")):
        shutil.copyfile(lock, share / lock.name)
    write_sbom(site_packages(layers), share / "sbom.cdx.json", plan)


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, topdown=False):
        yield from (Path(parent, name) for name in [*files, *folders])
    yield folder


if __name__ == "__main__":
    os.umask(0o022)
    install(Path(sys.argv[1]), Path(sys.argv[2]))
