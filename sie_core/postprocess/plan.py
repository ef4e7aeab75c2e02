"""Plans the outputs of a request: some are derived from others (MUVERA, SMVE), and all are cast to one dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sie_core.contracts import Converter, InputType, ItemOutput, OutputDtype, OutputType
from sie_core.postprocess.checks import require_finite


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The outputs that a request returns, their derivation and their dtype."""

    dtype: OutputDtype
    output_types: tuple[OutputType, ...] = ()
    """The outputs of `encode`; other operations return no vectors."""
    converters: Mapping[OutputType, Converter] = field(default_factory=dict)
    """The converters of outputs that the adapter does not compute, by the output each derives."""

    def convert(self, output: ItemOutput, input_type: InputType | None, where: str) -> ItemOutput:
        """Derive the outputs to return from an adapter's output; `where` names the item in errors, e.g. `items[3]`.

        Raises:
            InferenceError: `NON_FINITE_OUTPUT`: a converter returned NaN or infinity.
            ValueError: A converter left its output empty; the text is for the log.
        """
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
