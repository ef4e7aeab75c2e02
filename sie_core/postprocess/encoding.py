"""Encodes the output of one item as the wire's item map."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sie_sdk.wire import LARGE, pack, pack_with_arrays

from sie_core.contracts import ItemOutput, OutputDtype, SparseVector, Truncation
from sie_core.postprocess.checks import all_finite, non_finite
from sie_core.postprocess.extraction import truncation


def encode_item(
    output: ItemOutput, dtype: OutputDtype, item: int, item_id: str | None = None, truncated: Truncation | None = None
) -> bytes:
    """Cast the outputs of `items[item]` to `dtype` and pack them as one msgpack map.

    The map has `id` and `truncated` only if given. `dims` counts dimensions, not bytes, for packed bits too.

    Raises:
        InferenceError: `NON_FINITE_OUTPUT`, if a value is beyond the dtype's range.
    """
    fields: dict[str, Any] = {}
    if item_id is not None:
        fields["id"] = item_id
    if output.dense is not None:
        values = _cast(output.dense, dtype, "dense", item)
        fields["dense"] = {"dims": len(output.dense), "dtype": dtype.label, "values": values}
    if output.sparse is not None:
        fields["sparse"] = _sparse(output.sparse, dtype, item)
    if output.multivector is not None:
        tokens, dims = output.multivector.shape
        values = _cast(output.multivector, dtype, "multivector", item)
        fields["multivector"] = {"token_dims": dims, "num_tokens": tokens, "dtype": dtype.label, "values": values}
    if truncated is not None:
        fields |= truncation(truncated)
    if output.multivector is not None and output.multivector.nbytes >= LARGE:
        return cast("bytes", pack_with_arrays(fields))  # a view is read as bytes are
    return pack(fields)


def _sparse(sparse: SparseVector, dtype: OutputDtype, item: int) -> dict[str, Any]:
    values: NDArray[Any] = sparse.values
    label = "float32"
    if dtype.cast_sparse is not None:
        values, label = _finite(dtype.cast_sparse(values), dtype, "sparse", item), dtype.sparse_label
    indices = np.asarray(sparse.indices, dtype=np.int32)
    return {"dims": sparse.dims, "dtype": label, "indices": indices, "values": values}


def _cast(values: NDArray[Any], dtype: OutputDtype, name: str, item: int) -> NDArray[Any]:
    rows = np.asarray(values, dtype=np.float32)
    cast = dtype.cast(rows)
    return cast if cast is rows else _finite(cast, dtype, name, item)


def _finite(values: NDArray[Any], dtype: OutputDtype, name: str, item: int) -> NDArray[Any]:
    if values.dtype.kind == "f" and not all_finite(values):
        raise non_finite(name, f"items[{item}]", f"a value is beyond the range of {dtype.name}")
    return values
