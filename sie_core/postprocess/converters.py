"""Derived outputs: the converters of a model's profiles, and the ones that a request needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from sie_core.catalog import EffectiveOptions, config_name, is_on, parameters_of
from sie_core.contracts import (
    Converter,
    InferenceError,
    InferenceRequest,
    InputType,
    InvalidInput,
    ItemOutput,
    OutputType,
    Postprocessor,
    Profile,
    SparseVector,
)
from sie_core.plugins.interfaces.signatures import require
from sie_core.postprocess import require_form

Report = Callable[[str, str, BaseException], object]
"""Called with the name of a postprocessor, its fault and the exception."""


class ConverterFailed(ValueError):
    """A postprocessor itself failed; the text is fit for a client."""


class Converters:
    """The converters of one model's profiles, each made once. Used on one thread at a time.

    Args:
        postprocessors: The registered ones; those whose source the model gives are used.
        dims: The model's outputs and their dimensions.
        report: Called when a postprocessor fails.
    """

    def __init__(
        self,
        postprocessors: Mapping[str, Postprocessor],
        dims: Mapping[OutputType, int],
        report: Report = lambda name, problem, error: None,
    ) -> None:
        self.postprocessors = {name: each for name, each in postprocessors.items() if each.source in dims}
        self._dims = dims
        self._report = report
        self._made: dict[tuple[str, str], Converter] = {}

    def get(self, postprocessor: Postprocessor, profile: Profile) -> Converter:
        """Return the converter with the parameters of `profile`.

        Raises:
            ValueError: The model does not give the source, or the parameters contradict each other.
        """
        key = postprocessor.name, profile.name
        if key not in self._made:
            try:
                made = make_converter(postprocessor, profile, self._dims)
            except ConverterFailed as error:
                cause = error.__cause__ or error
                self._report(postprocessor.name, f"cannot be made ({type(cause).__name__})", cause)
                raise
            self._made[key] = CheckedConverter(postprocessor, made, self._report)
        return self._made[key]

    def warm(self, postprocessor: Postprocessor, profile: Profile) -> Converter:
        """Make a converter and use it once, so that no request waits for its random projections.

        Raises:
            ValueError: As `get` does; `ConverterFailed` if it cannot be used.
        """
        converter = self.get(postprocessor, profile)
        converter.convert(_sample(postprocessor.source, self._dims[postprocessor.source]), None)
        return converter


class CheckedConverter:
    """Wraps a plugin's converter, checks its outputs, and reports its failures."""

    def __init__(self, postprocessor: Postprocessor, converter: Converter, report: Report) -> None:
        self._postprocessor = postprocessor
        self._converter = converter
        self._report = report
        self.dims = converter.dims

    def convert(self, output: ItemOutput, input_type: InputType | None) -> ItemOutput:
        """Return an output with the target filled in.

        Raises:
            ConverterFailed: The plugin's converter raised, or its output has another form than its target and dims.
        """
        target = self._postprocessor.target
        try:
            made = self._converter.convert(output, input_type)
            if getattr(made, target) is None:
                raise ValueError(f"it made no {target} output")
            require_form(made, {target: self.dims}, "an item", "its")
        except Exception as error:
            self._report(self._postprocessor.name, f"failed ({type(error).__name__})", error)
            raise ConverterFailed(f"the postprocessor {self._postprocessor.name!r} failed") from error
        return made


def make_converter(postprocessor: Postprocessor, profile: Profile, dims: Mapping[OutputType, int]) -> Converter:
    """Make the converter of a model whose outputs have `dims`, with the parameters of `profile`.

    Raises:
        ConverterFailed: The postprocessor raised something else than a `ValueError`, or returned no converter.
        ValueError: The model does not give the source, or the parameters contradict each other.
    """
    source = postprocessor.source
    if source not in dims:
        gives = ", ".join(dims) or "no vectors"
        raise ValueError(f"{postprocessor.name} makes {postprocessor.target} of {source}, and the model gives {gives}")
    try:
        made = postprocessor.create(parameters_of(postprocessor, profile), dims[source])
        require(made, Converter)
        if not isinstance(made.dims, int):
            raise TypeError(f"dims is {made.dims!r:.100}, no int")
    except ValueError as error:
        raise ValueError(f"loadtime.{config_name(postprocessor)}: {error}") from error
    except Exception as error:
        raise ConverterFailed(f"the postprocessor {postprocessor.name!r} failed ({type(error).__name__})") from error
    return made


def turned_on(postprocessors: Iterable[Postprocessor], profile: Profile) -> list[Postprocessor]:
    """List the postprocessors that a profile turns on."""
    return [each for each in postprocessors if is_on(profile.runtime.get(each.name))]


def by_target(model: str, options: EffectiveOptions) -> dict[OutputType, Postprocessor]:
    """Return the postprocessors that are on, by target.

    Raises:
        InvalidInput: Two have the same target.
    """
    found: dict[OutputType, Postprocessor] = {}
    for each in options.postprocessors:
        other = found.setdefault(each.target, each)
        if other is not each:
            raise InvalidInput(
                f"options.{each.name} and {other.name} both make the {each.target} output of {model}; turn one off.",
                param=f"options.{each.name}",
            )
    return found


def needed(
    request: InferenceRequest,
    asked: Sequence[OutputType],
    options: EffectiveOptions,
    model: str,
    converters: Converters,
) -> dict[OutputType, Converter]:
    """Return the converters that the requested outputs need, by target.

    Raises:
        InvalidInput: One cannot be made, or the request turns one on without asking for its target.
        InferenceError: `INFERENCE_ERROR`: a postprocessor itself failed.
    """
    found: dict[OutputType, Converter] = {}
    for target, each in by_target(model, options).items():
        said = is_on(request.options.get(each.name))
        param = f"options.{each.name}" if said else "options.profile"
        if target in asked:
            try:
                found[target] = converters.get(each, options.profile)
            except ConverterFailed as error:
                raise InferenceError("INFERENCE_ERROR", f"{model}: {error}; the server's log says why.") from None
            except ValueError as error:
                raise InvalidInput(f"{model}: {error}.", param=param) from None
        elif said:
            raise InvalidInput(
                f"{param} makes {target} of {model}, and the request asks for {', '.join(asked)}.", param=param
            )
    return found


def _sample(output: OutputType, dims: int) -> ItemOutput:
    """Make the smallest output of a kind."""
    if output == "dense":
        return ItemOutput(dense=np.zeros(dims, dtype=np.float32))
    if output == "multivector":
        return ItemOutput(multivector=np.zeros((1, dims), dtype=np.float32))
    return ItemOutput(sparse=SparseVector(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), dims))
