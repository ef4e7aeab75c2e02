"""Resolves the outputs of a request: types, sizes and dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from sie_core.catalog.options.options import EffectiveOptions
from sie_core.catalog.wording import short
from sie_core.contracts import Converter, InferenceRequest, InvalidInput, ModelFacts, OutputDtype, OutputType

DEFAULT_DTYPE = "float32"
DEFAULT_OUTPUT: OutputType = "dense"
OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)
PREFERENCE: tuple[OutputType, ...] = ("multivector", "dense", "sparse")
"""Vectors that `score` compares if the request names none: the first of these that the model gives."""


@dataclass(frozen=True, slots=True)
class OutputChoice:
    """Chooses the outputs of one request to one model. Every method raises `InvalidInput` that names the field."""

    request: InferenceRequest
    options: EffectiveOptions
    model: str
    facts: ModelFacts
    notes: Mapping[str, str]
    """The model's reasons for outputs that it does not give, by output."""

    def names(self) -> tuple[OutputType, ...]:
        """Choose the outputs of `encode`, or the one that `score` compares for a model without scores of its own."""
        if self.request.operation == "encode":
            return self._encoded()
        if self.request.operation not in self.facts.operations:
            return (self._compared(),)
        given = self.request.options
        if wrong := [name for name in ("output_types", "dimensions") if given.get(name) is not None]:
            raise self._invalid(f"options.{wrong[0]}", f"has scores of its own: leave {listed(wrong)} out")
        return ()

    def of_adapter(self, names: Sequence[OutputType]) -> tuple[OutputType, ...]:
        """List the outputs to ask the adapter for: a derived one is replaced by its source."""
        sources = {each.target: each.source for each in self.options.postprocessors}
        wanted = {sources.get(name, name) for name in names}
        return tuple(name for name in OUTPUT_TYPES if name in wanted)

    def dimensions(self, names: Sequence[OutputType], converters: Mapping[OutputType, Converter]) -> int | None:
        """Choose the size of dense vectors; None for their native one."""
        request = self.request
        wanted = request.dimensions or self.options.dimensions
        said = request.dimensions or request.options.get("dimensions")
        if wanted is None or ("dense" not in names and said is None):
            return None  # the profile's size concerns dense vectors, and the request asks for other outputs
        param = "dimensions" if request.dimensions else "options.dimensions"
        asked = f"{param} is {wanted}, and"
        if "dense" not in names:
            raise InvalidInput(
                f"{asked} shortens dense vectors only: the request asks {self.model} for none.", param=param
            )
        made, dims = converters.get("dense"), self.facts.dims
        native = (dims["dense"],) if "dense" in dims else ()
        allowed = {made.dims} if made else {*self.facts.matryoshka_dims, *native}
        if wanted not in allowed:
            there = f"gives dense vectors of {listed(sorted(allowed))} dimensions"
            raise InvalidInput(f"{asked} {self.model} {there}.", param=param)
        return wanted

    def dtype(self, dtypes: Mapping[str, OutputDtype]) -> OutputDtype:
        """Choose among the values of `output_dtype`."""
        name = self.request.output_dtype or self.options.output_dtype or DEFAULT_DTYPE
        if name not in dtypes:
            param = "output_dtype" if self.request.output_dtype else "options.output_dtype"
            raise InvalidInput(f"{param} is {short(name)}; there are {listed(dtypes)}.", param=param)
        return dtypes[name]

    def _encoded(self) -> tuple[OutputType, ...]:
        by_option = self.request.options.get("output_types") is not None
        asked = self.options.output_types if by_option else self.request.output_types or self.options.output_types
        have = self._allowed()
        if asked is None:
            asked = (DEFAULT_OUTPUT,) if DEFAULT_OUTPUT in have else tuple(have[:1])
        self._require(asked, have, "options.output_types" if by_option else "output_types")
        return tuple(name for name in OUTPUT_TYPES if name in asked)

    def _compared(self) -> OutputType:
        # If a profile returns derived outputs only (MUVERA), scores compare their sources.
        have, asked, param = self._allowed() or list(self.facts.outputs), self.options.output_types, "output_types"
        if self.request.options.get(param) is None or asked is None:
            found = next((name for name in PREFERENCE if name in have), None)
            if found is None:
                raise self._invalid("model", "gives no vectors at this profile to compute a score of")
            return found
        self._require(asked, have, f"options.{param}")
        if len(asked) > 1:
            raise self._invalid(f"options.{param}", f"scores by one output at a time; name one of {listed(have)}")
        return asked[0]

    def _allowed(self) -> list[OutputType]:
        have = {*self.facts.outputs, *(each.target for each in self.options.postprocessors)}
        return [name for name in OUTPUT_TYPES if name in have and name in (self.options.profile.output_types or have)]

    def _require(self, asked: Sequence[OutputType], have: Sequence[OutputType], param: str) -> None:
        if wrong := [name for name in asked if name not in have]:
            why = " ".join(f" {note}" for name in wrong if (note := self.notes.get(name)))
            raise self._invalid(param, f"gives {listed(have)}, not {listed(wrong)}" + (f".{why}" if why else ""))

    def _invalid(self, param: str, problem: str) -> InvalidInput:
        return InvalidInput(f"{self.model} {problem}.", param=param)


def listed(names: Iterable[object]) -> str:
    """List names for a message."""
    return ", ".join(map(str, names)) or "nothing"
