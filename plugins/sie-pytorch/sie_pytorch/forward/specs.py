"""The runners this distribution registers, and the version of the interface they follow. It imports no torch."""

from __future__ import annotations

from sie_text.architectures import ACTIVATIONS, Feature

from sie_core.contracts import RunnerSpec

NAME, VERSION = "sie.runner", 3
INTERFACE = f"{NAME}/{VERSION}"
"""The `RunnerSpec.interface` of runners that follow the Protocol `Runner` of this release.

Version 3: `forward` takes a `Batch` in place of its fields.
"""
VERSION_2 = f"{NAME}/2"
"""The version before, which is served too: `forward` takes the fields of a `Batch`."""
EARLIER = frozenset({"sie_pytorch.runners.Runner", "sie_pytorch.forward.Runner"})
"""Names of the interface before it had a version."""

RUNNERS = (
    RunnerSpec(
        name="encoder-loop",
        interface=INTERFACE,
        target="sie_pytorch.forward.loop.runner:EncoderLoop",
        features=frozenset(Feature) - {Feature.DISENTANGLED},
        devices=frozenset({"cpu"}),
        priority=10,
    ),
    RunnerSpec(
        name="deberta",
        interface=INTERFACE,
        target="sie_pytorch.forward.deberta.runner:PackedDeberta",
        model_types=frozenset({"deberta-v2"}),
        features=frozenset({Feature.DISENTANGLED, Feature.LAYER_NORM, Feature.POST_NORM, *ACTIVATIONS.values()}),
        devices=frozenset({"cpu"}),
        priority=10,
    ),
    RunnerSpec(name="packed", interface=INTERFACE, target="sie_pytorch.forward.packed:PackedRunner"),
    RunnerSpec(
        name="padded", interface=INTERFACE, target="sie_pytorch.forward.padded.runner:PaddedRunner", priority=-1000
    ),
)
"""For CPUs the encoder loop and DeBERTa, on prepacked weights; transformers' own model classes over concatenated
sequences.

The padded runner is the fallback, with or without this row.
"""


def other_version(spec: RunnerSpec) -> str | None:
    """Explain why a runner of another version of this interface is refused, with the remedy; None if it is not one."""
    name, _, version = spec.interface.partition("/")
    if spec.interface in (INTERFACE, VERSION_2) or (name != NAME and spec.interface not in EARLIER):
        return None
    newer = version.isdecimal() and int(version) > VERSION
    remedy = "upgrade sie-pytorch" if newer else "upgrade the distribution that registers it"
    return f"it follows {spec.interface}, and this sie-pytorch runs {INTERFACE}: {remedy}"
