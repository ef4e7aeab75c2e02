"""Reading a good answer: bodies of either format into results, and what the headers say of the request.

It knows nothing of retries, and of failures only that an answer it cannot read is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sie_sdk import wire
from sie_sdk._answers.extracted import extract_result, read_truncated, score_entry
from sie_sdk._answers.headers import request_info, timing
from sie_sdk._calls.exchange import Response
from sie_sdk.errors import IncompleteBatchError, RequestError
from sie_sdk.types import (
    EncodeResult,
    ExtractResult,
    HealthInfo,
    ModelInfo,
    RequestInfo,
    ScoreResult,
    SparseEmbedding,
    Token,
)

Result = TypeVar("Result", EncodeResult, ExtractResult)


def read_encode(response: Response, item_ids: Sequence[str | None]) -> list[EncodeResult]:
    """Read the answer to an `encode` of the items with these ids, in their order.

    Raises:
        IncompleteBatchError: It holds another number of results.
        RequestError: It is not an answer to `encode`.
    """
    return _read_items(response, "encode", item_ids, _encode_result)


def read_extract(response: Response, item_ids: Sequence[str | None]) -> list[ExtractResult]:
    """Read the answer to an `extract` of the items with these ids, in their order.

    Raises:
        IncompleteBatchError: It holds another number of results.
        RequestError: It is not an answer to `extract`.
    """
    return _read_items(response, "extract", item_ids, extract_result)


def read_score(response: Response) -> ScoreResult:
    """Read the answer to a `score`.

    Raises:
        RequestError: It is not an answer to `score`.
    """
    body = _body(response)
    info = request_info(response.headers, body.get("usage"))
    with _readable(response, "score"):
        result = ScoreResult(model=str(body["model"]), scores=[score_entry(entry) for entry in body["scores"]])
        if body.get("query_id") is not None:
            result["query_id"] = str(body["query_id"])
        if spent := timing(response.headers, body.get("timing")):
            result["timing"] = spent
    if info:
        result["request"] = info
        if "usage" in info:
            result["usage"] = info["usage"]
    return result


def _read_items(
    response: Response, operation: str, item_ids: Sequence[str | None], read: Callable[[Mapping[str, Any]], Result]
) -> list[Result]:
    body = _body(response)
    info = request_info(response.headers, body.get("usage"))
    with _readable(response, operation):
        spent = timing(response.headers, body.get("timing"))
        results = [read(item) for item in body["items"]]
        model = str(body["model"])
    for result in results:
        result["model"] = model
        if spent:
            result["timing"] = spent
        if info:
            result["request"] = info
    if len(results) != len(item_ids):
        raise _incomplete(results, item_ids, info, f"{operation.upper()}_RESULT_COUNT_MISMATCH")
    return results


@contextmanager
def _readable(response: Response, operation: str) -> Iterator[None]:
    """Turn what goes wrong while an answer is taken apart into an error that says so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unreadable(response, f"it is no answer to {operation}: {error!r}") from error


def read_tokens(response: Response, count: int) -> list[list[Token]]:
    """Read the answer to a `tokenize` of so many texts.

    Raises:
        RequestError: It is not an answer to `tokenize`, or to that of another number of texts.
    """
    body = _decoded(response)
    with _readable(response, "tokenize"):
        if not isinstance(body, list) or len(body) != count:
            raise TypeError(f"{count} lists of tokens are expected")
        return [[_token(token) for token in tokens] for tokens in body]


def read_health(response: Response) -> HealthInfo:
    """Read the answer of `GET /health`.

    Raises:
        RequestError: It is another answer.
    """
    body = _body(response)
    if "status" not in body:
        raise _unreadable(response, "it has no `status`")
    return cast("HealthInfo", body)


def read_models(response: Response) -> list[ModelInfo]:
    """Read the answer of `GET /v1/models`.

    Raises:
        RequestError: It is another answer.
    """
    models = _body(response).get("models")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise _unreadable(response, "it has no list `models`")
    return cast("list[ModelInfo]", models)


def read_model(response: Response) -> ModelInfo:
    """Read the answer of `GET /v1/models/{model}`.

    Raises:
        RequestError: It is another answer.
    """
    body = _body(response)
    if "name" not in body:
        raise _unreadable(response, "it has no `name`")
    return cast("ModelInfo", body)


def _encode_result(item: Mapping[str, Any]) -> EncodeResult:
    result = EncodeResult()
    if item.get("id") is not None:
        result["id"] = str(item["id"])
    if (dense := item.get("dense")) is not None:
        result["dense"] = _array(dense, "values")
    if (sparse := item.get("sparse")) is not None:
        indices: NDArray[np.int32] = np.asarray(sparse["indices"], np.int32)
        result["sparse"] = SparseEmbedding(indices=indices, values=_array(sparse, "values"))
    if (multivector := item.get("multivector")) is not None:
        result["multivector"] = _array(multivector, "values")
    if (truncated := item.get("truncated")) is not None:
        result["truncated"] = read_truncated(truncated)
    return result


def _array(output: Mapping[str, Any], key: str) -> NDArray[Any]:
    values = output[key]
    if isinstance(values, np.ndarray):
        return values
    if not isinstance(values, list):
        raise TypeError(f"{key} is a {type(values).__name__}, neither an array nor a list")
    array = np.array(values, wire.DTYPE_LABELS[output["dtype"]])
    array.flags.writeable = False
    return array


def _token(token: Mapping[str, Any]) -> Token:
    start, stop = token.get("start"), token.get("stop")
    return {
        "id": int(token["id"]),
        "text": str(token["text"]),
        "special": bool(token["special"]),
        "start": None if start is None else int(start),
        "stop": None if stop is None else int(stop),
    }


def _body(response: Response) -> dict[str, Any]:
    body = _decoded(response)
    if not isinstance(body, dict):
        raise _unreadable(response, f"its body is a {type(body).__name__}, no map")
    return body


def _decoded(response: Response) -> object:
    try:
        if "json" in response.headers.get("content-type", ""):
            # A call back into Python for each map: without one, another thread waits until all is read.
            return json.loads(response.body, object_hook=_same)
        return wire.unpack(response.body, longest=None)
    except (ValueError, RecursionError) as error:
        raise _unreadable(response, str(error)) from error


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _unreadable(response: Response, reason: str) -> RequestError:
    kind = response.headers.get("content-type", "no content type")
    message = f"the server's answer ({kind}, {len(response.body)} bytes) cannot be read: {reason}"
    return RequestError(message, status_code=response.status, request=request_info(response.headers, None))


def _incomplete(
    results: Sequence[EncodeResult | ExtractResult],
    item_ids: Sequence[str | None],
    info: RequestInfo | None,
    code: str,
) -> IncompleteBatchError:
    received = {result.get("id") for result in results}
    return IncompleteBatchError(
        f"{len(item_ids)} items were sent and {len(results)} results came back",
        results=results,
        missing_ids=[item_id for item_id in item_ids if item_id is not None and item_id not in received],
        expected=len(item_ids),
        request_id=info.get("id") if info else None,
        code=code,
        request=info,
    )
