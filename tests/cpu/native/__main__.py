"""`make sanitize`: encoders drawn at random through every build of the kernels, under sanitizers."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sie_cpu.builds import BUILDS, processor_flags

from tests.cpu.native.building import SANITIZERS, Size, compile_fuzz, flags_of, run_fuzz


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cpu.native", description=__doc__)
    parser.add_argument("--encoders", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    size = Size(**vars(parser.parse_args()))
    for build in BUILDS:
        if not build.flags <= processor_flags():
            print(f"{build.name}: not run, this processor has no {', '.join(sorted(build.flags - processor_flags()))}")
            continue
        for name, sanitizer in SANITIZERS.items():
            with tempfile.TemporaryDirectory() as folder:
                program = compile_fuzz(Path(folder), (*flags_of(build.library), *sanitizer))
                print(f"{build.name}, {name}: {run_fuzz(program, size)}", flush=True)


if __name__ == "__main__":
    main()
