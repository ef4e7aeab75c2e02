"""The plugin `cpu`: a runner of sie-pytorch's interface whose layers are compiled code.

It names a class and imports no torch.
"""

from __future__ import annotations

from sie_pytorch.forward import INTERFACE
from sie_text.architectures import Feature

from sie_core.contracts import PluginSetting, RunnerSpec
from sie_core.hookspecs import hookimpl
from sie_cpu.builds import ISA, fast_in, installed

INTERFACES = ("sie.runner/2", "sie.setting/1")


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the kernels, before the runners that are written in PyTorch."""
    return [
        RunnerSpec(
            name="cpu-kernels",
            interface=INTERFACE,
            target="sie_cpu.runner:KernelRunner",
            features=frozenset(Feature) - {Feature.RELATIVE_BIAS},
            devices=frozenset({"cpu"}),
            priority=20,
            build=installed(),
            fast_in=fast_in(),
        )
    ]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register the setting that narrows the kernels' instruction set."""
    return [ISA]
