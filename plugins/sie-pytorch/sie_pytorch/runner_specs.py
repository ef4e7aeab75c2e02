"""The runners this distribution registers, for `sie_runners`. Names them only: it imports no torch."""

from sie_core.contracts import RunnerSpec
from sie_pytorch.loop.table import ROWS

INTERFACE = "sie_pytorch.runners.Runner"
"""The `RunnerSpec.interface` of runners that follow the Protocol `Runner`."""

RUNNERS = (
    RunnerSpec(
        name="encoder-loop",
        interface=INTERFACE,
        target="sie_pytorch.loop.runner:EncoderLoop",
        model_types=frozenset(ROWS),
        devices=frozenset({"cpu"}),
        priority=10,
    ),
    RunnerSpec(name="packed", interface=INTERFACE, target="sie_pytorch.runners.packed:PackedRunner"),
)
"""The encoder loop on prepacked weights for CPUs; transformers' own model classes over concatenated sequences.

The padded runner needs no row: it is what is left.
"""
