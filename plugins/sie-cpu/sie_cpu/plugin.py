"""The plugin `cpu`: families whose forward pass is compiled code, and the same code as a runner of sie-pytorch.

It names functions and classes and imports no model library.
"""

from __future__ import annotations

from sie_text.claims import claim_classifier, claim_encoder, claim_pairs, claim_token_classifier
from sie_text.options import CLASSIFIER_OPTIONS, ENCODER_OPTIONS, ENTITY_OPTIONS, PAIR_OPTIONS

from sie_core.contracts import ModelFamily, PluginSetting, RunnerSpec
from sie_core.hookspecs import hookimpl
from sie_cpu.builds import ISA, fast_in, installed
from sie_cpu.families.claims import FEATURES, on_kernels

INTERFACES = ("sie.family/1", "sie.runner/3", "sie.setting/1")
CPU = frozenset({"cpu"})


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the families, which need no PyTorch."""
    return [
        ModelFamily(
            "cpu",
            "sie_cpu.families.encoders:load",
            on_kernels(claim_encoder),
            devices=CPU,
            options=ENCODER_OPTIONS,
            preview="sie_text.claims:preview_encoder",
        ),
        ModelFamily(
            "cpu-pairs",
            "sie_cpu.families.pairs:load",
            on_kernels(claim_pairs),
            devices=CPU,
            options=PAIR_OPTIONS,
            preview="sie_text.claims:preview_pairs",
        ),
        ModelFamily(
            "cpu-tokens",
            "sie_cpu.families.tokens:load",
            on_kernels(claim_token_classifier),
            devices=CPU,
            options=ENTITY_OPTIONS,
            preview="sie_text.claims:preview_token_classifier",
        ),
        ModelFamily(
            "cpu-classify",
            "sie_cpu.families.encoders:load_classifier",
            on_kernels(claim_classifier),
            devices=CPU,
            options=CLASSIFIER_OPTIONS,
            preview="sie_text.claims:preview_classifier",
        ),
    ]


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the kernels as a runner, before those that are written in PyTorch; none without sie-pytorch."""
    try:
        from sie_pytorch.forward import INTERFACE
    except ModuleNotFoundError:
        return []
    return [
        RunnerSpec(
            name="cpu-kernels",
            interface=INTERFACE,
            target="sie_cpu.runner:KernelRunner",
            features=FEATURES,
            devices=CPU,
            priority=20,
            build=installed(),
            fast_in=fast_in(),
        )
    ]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register the setting that narrows the kernels' instruction set."""
    return [ISA]
