"""Loads models, each in a process of its own, and prints what memory each load took and kept: run as a script.

All processes are forked from one that has imported everything and started no threads, and have loaded a tiny model of
the kind before, so that what is measured is weights. The parent watches the memory of the one that loads.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import sie_cpu.plugin
import sie_pytorch.plugin
import torch
from sie_pytorch.families.encode.loading import load as load_encoder

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Device, LoadContext, ModelConfig, Profile, ResolvedModel


def memory(process: int) -> tuple[int, int]:
    """Read the bytes of a process that are its own, and those that are pages of files."""
    status = Path(f"/proc/{process}/status").read_text()
    anonymous, of_files = (1024 * int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("RssAnon", "RssFile"))
    return anonymous, of_files


def load(folder: Path, precision: str, runner: str) -> Adapter:
    specs = [each for each in (*sie_pytorch.plugin.sie_runners(), *sie_cpu.plugin.sie_runners()) if each.name == runner]
    profile = Profile("default")
    model = ResolvedModel("m", ModelConfig("m", profiles={"default": profile}), profile)
    context = LoadContext(model, Device("cpu"), precision, weights=folder, card=read_card(folder), runners=tuple(specs))
    return load_encoder(context)


def settle() -> None:
    """Give what is free back to the system, as the engine does after a load that failed or a model that went."""
    ctypes.CDLL(None).malloc_trim(0)


def measured(tiny: Path, folder: Path, **how: str) -> dict[str, Any]:
    """Load in a fork of this process; give the runner, and bytes: what it grew by, and had grown by at the peak."""
    ready, go, answer = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            load(tiny, **how).unload()
            settle()
            before = memory(os.getpid())
            os.write(ready[1], b".")
            os.read(go[0], 1)
            adapter = load(folder, **how)
            settle()
            after = memory(os.getpid())
            said = {"runner": adapter.facts.notes["runner"], "said": adapter.facts.memory_bytes}
            grown = {"before": before, "own": after[0] - before[0], "files": after[1] - before[1]}
            os.write(answer[1], json.dumps({**said, **grown}).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(ready[1]), os.close(answer[1])
    if not os.read(ready[0], 1):
        raise RuntimeError("the load failed")
    os.write(go[1], b".")
    own = both = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        try:
            now = memory(child)
            own, both = max(own, now[0]), max(both, sum(now))
        except (OSError, TypeError):  # it has just ended
            break
    found = json.loads(os.read(answer[0], 4096))
    before = found.pop("before")
    return {**found, "peak": own - before[0], "peak_with_files": both - sum(before)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tiny, folders, cases = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    for folder, how in cases:
        print(json.dumps(measured(tiny / folder, folders / folder, **how)), flush=True)
