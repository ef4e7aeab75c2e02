"""Postprocessors and output dtypes, each broken in one way."""

from __future__ import annotations

import threading
import time

import numpy as np

from sie_core.contracts import ItemOutput, Option, OutputDtype, Postprocessor
from tests.kit.faults.seeding import fault


class Doubled:
    """A sound converter of a dense vector into two rows; faults are made of it."""

    target = "multivector"
    source = "dense"
    parameters: tuple[Option, ...] = ()

    def __init__(self, config, dims):
        self.dims = dims
        self.calls = 0

    def convert(self, output, input_type):
        return ItemOutput(multivector=np.stack([output.dense, output.dense]))


class Mean(Doubled):
    """A sound converter of a multi-vector into its mean."""

    source, target = "multivector", "dense"

    def convert(self, output, input_type):
        rows = output.multivector
        return ItemOutput(dense=rows.mean(axis=0) if len(rows) else np.zeros(self.dims, dtype=np.float32))


MAKES = "it_makes_what_it_says"


@fault("postprocessor", MAKES)
class OfAnotherSize(Doubled):
    def convert(self, output, input_type):
        return ItemOutput(multivector=output.dense[None, :-1])


@fault("postprocessor", MAKES)
class OfAnotherPrecision(Doubled):
    def convert(self, output, input_type):
        return ItemOutput(multivector=output.dense[None].astype(np.float64))


@fault("postprocessor", MAKES)
class MakesNothing(Doubled):
    def convert(self, output, input_type):
        return output


@fault("postprocessor", MAKES)
class Changing(Doubled):
    def convert(self, output, input_type):
        self.calls += 1
        return ItemOutput(multivector=output.dense[None] * np.float32(self.calls))


@fault("postprocessor", MAKES)
class DividesByZero(Doubled):
    def convert(self, output, input_type):
        with np.errstate(divide="ignore"):
            return ItemOutput(multivector=output.dense[None] / np.float32(0))


@fault("postprocessor", "it_leaves_its_source_alone")
class InPlace(Doubled):
    def convert(self, output, input_type):
        output.dense *= 2
        return super().convert(output, input_type)


@fault("postprocessor", "extreme_outputs_are_converted")
class FailsOnZeros(Doubled):
    def convert(self, output, input_type):
        with np.errstate(all="ignore"):
            return ItemOutput(multivector=(output.dense / np.linalg.norm(output.dense))[None])


@fault("postprocessor", "extreme_outputs_are_converted")
class FailsOnOneRow(Mean):
    def convert(self, output, input_type):
        rows = output.multivector
        return ItemOutput(dense=(rows[0] + rows[1]) / 2)


@fault("postprocessor", "extreme_outputs_are_converted")
class FailsOnLargeNumbers(Mean):
    def convert(self, output, input_type):
        with np.errstate(all="ignore"):
            return ItemOutput(dense=np.exp(output.multivector).mean(axis=0))


@fault("postprocessor", "it_may_run_on_several_threads")
class ConvertsInAField(Doubled):
    def convert(self, output, input_type):
        self.row = output.dense
        time.sleep(0.0005)
        return ItemOutput(multivector=self.row[None])


@fault("postprocessor", "it_may_run_on_several_threads")
class BelongsToOneThread(Doubled):
    def __init__(self, config, dims):
        super().__init__(config, dims)
        self.local = threading.local()
        self.local.ready = True

    def convert(self, output, input_type):
        assert self.local.ready
        return super().convert(output, input_type)


@fault("postprocessor", "its_parameters_are_checked")
class FailsOnItsOwnParameters(Doubled):
    parameters = (Option("rows", "load", int, description="Rows.", minimum=1, maximum=8),)

    def __init__(self, config, dims):
        super().__init__(config, dims)
        if config.get("rows"):
            raise TypeError("rows is not expected")


@fault("postprocessor", "its_parameters_are_checked")
class ForgetsWhatItHasMade(Doubled):
    """Stores dims of the last one made in the class."""

    parameters = (Option("rows", "load", int, description="Rows.", minimum=1, maximum=8),)
    dims = 0

    def __init__(self, config, dims):
        type(self).dims = dims + config.get("rows", 0)

    def convert(self, output, input_type):
        return ItemOutput(multivector=np.zeros((1, self.dims), dtype=np.float32))


@fault("postprocessor", "it_is_made_for_any_size")
class KnowsTwoSizes(Doubled):
    def __init__(self, config, dims):
        super().__init__(config, dims)
        self.rows = {32: 1, 384: 2}[dims]


@fault("postprocessor", None)
class MixesUpQueries(Doubled):
    """Treats documents as queries: what is right is the method's to know."""

    def convert(self, output, input_type):
        return super().convert(output, "query")


def half(rows):
    return rows.astype(np.float16)


def in_company(rows):
    return rows / (np.abs(rows).max() or 1)


def in_place(rows):
    rows *= 2
    return rows


def flat(rows):
    return rows.reshape(-1)


def by_its_norm(rows):
    with np.errstate(all="ignore"):
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def by_threes(rows):
    return rows.reshape(*rows.shape[:-1], -1, 3).mean(axis=-1)


def by_fours(rows):
    return rows.reshape(*rows.shape[:-1], -1, 4).mean(axis=-1)


def objects(rows):
    return rows.astype(object)


def at_random(rows):
    return rows + np.random.default_rng().standard_normal(rows.shape).astype(np.float32)


def of_matrices(rows):
    return rows[:, :2]


def of_rows(rows):
    return rows.round() if rows.ndim == 1 else np.stack([of_rows(row) for row in rows])


SHARED = np.zeros(1, dtype=np.float32)


def in_a_global(rows):
    global SHARED
    SHARED = rows
    time.sleep(0.0005)
    return SHARED.astype(np.float16)


def longer(values):
    return np.concatenate([values, values])


for cast, check in (
    (in_company, "each_row_is_cast_alone"),
    (in_place, "each_row_is_cast_alone"),
    (flat, "each_row_is_cast_alone"),
    (of_matrices, "each_row_is_cast_alone"),
    (by_its_norm, "extreme_numbers_are_cast"),
    (by_threes, "each_row_is_cast_alone"),
    (by_fours, "any_size_is_cast"),
    (objects, "numbers_can_be_sent"),
    (at_random, "each_row_is_cast_alone"),
    (in_a_global, "cast_may_run_on_several_threads"),
):
    fault("output dtype", check)(OutputDtype(cast.__name__, "t", cast))
SLOW = "it casts row by row: a matter of speed, which the kit does not judge"
fault("output dtype", None, why=SLOW)(OutputDtype("of_rows", "t", of_rows))
fault("output dtype", "sparse_values_keep_their_number")(OutputDtype("longer", "t", half, cast_sparse=longer))
fault("output dtype", "sparse_values_keep_their_number")(
    OutputDtype("nameless", "t", half, cast_sparse=half, sparse_label="")
)


def made(converter: type[Doubled]) -> Postprocessor:
    """Register a converter's class as a plugin does."""
    return Postprocessor("t", converter.source, converter.target, create=converter, parameters=converter.parameters)
