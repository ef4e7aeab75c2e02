"""The checks of postprocessors and output dtypes.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sie_sdk.wire import pack

from sie_core.contracts import (
    InputType,
    ItemOutput,
    OutputDtype,
    OutputType,
    Postprocessor,
    SparseVector,
)
from sie_kit.loading import values_of
from sie_kit.outcomes import Skipped

THREADS = 8
"""Threads at once: more than the CPU threads of most engines."""
DIMS = 32
"""Dimensions of the vectors that postprocessors are checked with."""


def each_row_is_cast_alone(dtype: OutputDtype) -> None:
    """A row of a matrix is cast like the row alone; leading axes stay, the given array is not modified."""
    rows = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    rows[2] = 0.0
    before = rows.copy()
    cast = np.asarray(dtype.cast(rows))
    assert cast.shape[:-1] == (5,), f"cast gives shape {cast.shape} for (5, 32)"
    for position, row in enumerate(before):
        assert np.array_equal(cast[position], dtype.cast(row.copy())), f"row {position} is cast otherwise in company"
    assert np.array_equal(rows, before), "cast changed the array it was given"
    assert dtype.label, "label is empty"


def sparse_values_keep_their_number(dtype: OutputDtype) -> None:
    """`cast_sparse` gives as many values as it gets."""
    if dtype.cast_sparse is not None:
        assert dtype.cast_sparse(np.ones(7, dtype=np.float32)).shape == (7,), "cast_sparse changes how many values"
        assert dtype.sparse_label, "sparse_label is empty"


def it_makes_what_it_says(postprocessor: Postprocessor) -> None:
    """Without parameters it makes finite float32 of its stated dims, for every input type and the same each time."""
    converter = postprocessor.create({}, DIMS)
    for input_type in (None, *get_args(InputType)):
        made, again = (_made(postprocessor, converter.convert(_output(postprocessor.source), input_type)) for _ in "12")
        dims = made.dims if isinstance(made, SparseVector) else made.shape[-1]
        assert dims == converter.dims, f"{postprocessor.target} has {dims} dimensions, and dims says {converter.dims}"
        values, others = (each.values if isinstance(each, SparseVector) else each for each in (made, again))
        assert values.dtype == np.float32, f"{postprocessor.target} is {values.dtype}, not float32"
        assert np.isfinite(values).all(), f"{postprocessor.target} holds NaN or infinity"
        assert np.array_equal(values, others), "equal outputs are made into different ones"


def it_leaves_its_source_alone(postprocessor: Postprocessor) -> None:
    """The given output is not modified: it may be returned too."""
    given = _output(postprocessor.source)
    before = deepcopy(given)
    postprocessor.create({}, DIMS).convert(given, "query")
    for name in get_args(OutputType):
        old, new = (getattr(each, name) for each in (before, given))
        old, new = (each.values if isinstance(each, SparseVector) else each for each in (old, new))
        assert np.array_equal(old, new), f"convert changed the {name} output it was given"


def _made(postprocessor: Postprocessor, output: ItemOutput) -> Any:
    made = getattr(output, postprocessor.target)
    assert made is not None, f"convert fills no {postprocessor.target} output"
    return made


def _values(made: Any) -> Any:
    return made.values if isinstance(made, SparseVector) else made


def _rows() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((5, DIMS)).astype(np.float32)


def _output(kind: OutputType, value: float | None = None) -> ItemOutput:
    """Make an output of a kind with numbers in it: random ones, or all of them `value`."""
    rows = _rows() if value is None else np.full((5, DIMS), value, dtype=np.float32)
    if kind == "dense":
        return ItemOutput(dense=rows[0])
    if kind == "multivector":
        return ItemOutput(multivector=rows)
    return ItemOutput(sparse=SparseVector(np.arange(5, dtype=np.int32), rows[0, :5], DIMS))


def extreme_outputs_are_converted(postprocessor: Postprocessor) -> None:
    """Zeros, very large numbers and a multi-vector of one row give finite numbers too."""
    converter = postprocessor.create({}, DIMS)
    for what, output in _extremes(postprocessor.source):
        try:
            made = _made(postprocessor, converter.convert(output, "document"))
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"convert fails on {what} ({type(error).__name__}: {error})") from error
        values = made.values if isinstance(made, SparseVector) else made
        assert np.isfinite(values).all(), f"{postprocessor.target} of {what} holds NaN or infinity"


def _extremes(kind: OutputType) -> Iterator[tuple[str, ItemOutput]]:
    for what, value in (("zeros", 0.0), ("large numbers", 1e4)):
        yield what, _output(kind, value)
    if kind == "multivector":
        yield "one row", ItemOutput(multivector=_rows()[:1])


def it_may_run_on_several_threads(postprocessor: Postprocessor) -> None:
    """One converter, made on one thread, converts other outputs on eight threads as on one."""
    converter = postprocessor.create({}, DIMS)
    outputs = [_output(postprocessor.source, float(place)) for place in range(1, 33)]
    expected = [_values(_made(postprocessor, converter.convert(output, None))) for output in outputs]
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            made = list(pool.map(lambda each: _values(_made(postprocessor, converter.convert(each, None))), outputs))
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"convert fails on another thread ({type(error).__name__}: {error})") from error
    for one, other in zip(expected, made, strict=True):
        assert np.array_equal(one, other), "convert gives something else while other threads convert"


def its_parameters_are_checked(postprocessor: Postprocessor) -> None:
    """Each declared parameter takes its allowed values, or refuses them by ValueError; converters stay apart."""
    if not postprocessor.parameters:
        raise Skipped("it declares no parameters")
    plain = postprocessor.create({}, DIMS)
    before = plain.dims
    for option in postprocessor.parameters:
        for value in values_of(option)[-1:]:
            given = f"{option.name}={value!r}"
            try:
                converter = postprocessor.create({option.name: value}, DIMS)
                made = _made(postprocessor, converter.convert(_output(postprocessor.source), None))
            except ValueError:  # it contradicts the other parameters
                continue
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(f"{given} fails with {type(error).__name__}: {error}; raise ValueError") from error
            width = made.dims if isinstance(made, SparseVector) else made.shape[-1]
            assert width == converter.dims, f"with {given} it has {width} dimensions, and dims says {converter.dims}"
            assert plain.dims == before, f"a converter made with {given} changes one that was made before"


def it_is_made_for_any_size(postprocessor: Postprocessor) -> None:
    """`create` takes any dims of the source, or refuses them by ValueError."""
    for dims in (1, 7, 384):
        try:
            converter = postprocessor.create({}, dims)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"create fails for {dims} dims with {type(error).__name__}: {error}") from error
        assert converter.dims > 0, f"for {dims} dims of {postprocessor.source}, dims is {converter.dims}"


def any_size_is_cast(dtype: OutputDtype) -> None:
    """Rows of 1, 7 and 384 numbers are cast, alone and in a matrix."""
    for dims in (1, 7, 384):
        rows = _rows()[:, :1].repeat(dims, axis=1)
        try:
            cast, alone = dtype.cast(rows), dtype.cast(rows[0])
        except Exception as error:
            raise AssertionError(f"cast fails for {dims} numbers ({type(error).__name__}: {error})") from error
        assert np.array_equal(cast[0], alone), f"a row of {dims} numbers is cast otherwise in company"


def extreme_numbers_are_cast(dtype: OutputDtype) -> None:
    """Zeros and numbers far from 1 are cast without NaN, infinity or a warning."""
    for value in (0.0, 1e-30, 1.0, 60000.0):
        rows = np.full((2, DIMS), value, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                cast = dtype.cast(rows)
            except Exception as error:
                raise AssertionError(f"cast fails for rows of {value:g} ({type(error).__name__}: {error})") from error
        numbers = cast.dtype.kind == "f"
        assert not numbers or np.isfinite(cast).all(), f"rows of {value:g} are cast to NaN or infinity"


def numbers_can_be_sent(dtype: OutputDtype) -> None:
    """The array travels: its type is one of the wire's."""
    cast = dtype.cast(_rows())
    try:
        pack({"values": np.ascontiguousarray(cast)})
    except Exception as error:
        raise AssertionError(f"an array of {cast.dtype} cannot be sent: {error}") from error


def cast_may_run_on_several_threads(dtype: OutputDtype) -> None:
    """Eight threads cast other arrays at once and get what one gets."""
    arrays = [_rows() * np.float32(place) for place in range(1, 33)]
    expected = [dtype.cast(array) for array in arrays]
    with ThreadPoolExecutor(THREADS) as pool:
        for one, other in zip(expected, pool.map(dtype.cast, arrays), strict=True):
            assert np.array_equal(one, other), "cast gives something else while other threads cast"


POSTPROCESSOR_CHECKS: Sequence[Callable[[Postprocessor], None]] = (
    it_makes_what_it_says,
    it_leaves_its_source_alone,
    extreme_outputs_are_converted,
    it_may_run_on_several_threads,
    its_parameters_are_checked,
    it_is_made_for_any_size,
)
DTYPE_CHECKS: Sequence[Callable[[OutputDtype], None]] = (
    each_row_is_cast_alone,
    sparse_values_keep_their_number,
    any_size_is_cast,
    extreme_numbers_are_cast,
    numbers_can_be_sent,
    cast_may_run_on_several_threads,
)
