"""The plugin `cpu`: a runner of sie-pytorch's interface whose layers are compiled code.

It names a class and imports no torch.
"""

from __future__ import annotations

from sie_pytorch.runner_specs import INTERFACE

from sie_core.contracts import RunnerSpec
from sie_core.hookspecs import hookimpl
from sie_cpu.table import KERNEL_ROWS

CONTRACT_VERSION = 1


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the kernels, before the runners that are written in PyTorch."""
    return [
        RunnerSpec(
            name="cpu-kernels",
            interface=INTERFACE,
            target="sie_cpu.runner:KernelRunner",
            model_types=frozenset(KERNEL_ROWS),
            devices=frozenset({"cpu"}),
            priority=20,
        )
    ]
