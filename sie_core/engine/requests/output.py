"""What becomes of an adapter's outputs before they leave: some are made of others, then all are cast.

It must not know requests, options or how a converter came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sie_core.contracts import Converter, InputType, ItemOutput, OutputDtype, OutputType
from sie_core.postprocess import require_finite


@dataclass(frozen=True, slots=True)
class Leaving:
    """The outputs that leave, and their dtype."""

    dtype: OutputDtype
    output_types: tuple[OutputType, ...] = ()
    """Of `encode`; those of the other operations are not vectors."""
    converters: Mapping[OutputType, Converter] = field(default_factory=dict)
    """For the outputs that the adapter does not give, by what they make."""

    def convert(self, output: ItemOutput, input_type: InputType | None, where: str) -> ItemOutput:
        """Make what leaves of an adapter's output of `where`, e.g. `items[3]`.

        Raises:
            InferenceError: `NON_FINITE_OUTPUT`, where a converter made NaN or infinity.
            ValueError: A converter made nothing; the text is for the log.
        """
        if not self.converters:
            return output
        leaves = ItemOutput(normalized=output.normalized)
        for name in self.output_types:
            converter = self.converters.get(name)
            made = output if converter is None else converter.convert(output, input_type)
            if getattr(made, name) is None:
                raise ValueError(f"{converter!r} made no {name} output of {where}")
            setattr(leaves, name, getattr(made, name))
            if name == "dense":
                leaves.normalized = made.normalized
        require_finite(leaves, where)
        return leaves
