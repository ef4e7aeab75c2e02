"""The runners this distribution registers, for `sie_runners`. Names them only: it imports no torch."""

from sie_core.contracts import RunnerSpec

RUNNERS = (
    RunnerSpec(
        name="packed",
        interface="sie_pytorch.runners.Runner",
        target="sie_pytorch.runners.packed:PackedRunner",
    ),
)
"""transformers' own model classes over concatenated sequences. The padded runner needs no row: it is what is left."""
