"""Classes of texts in the shape of text-embeddings-inference (TEI), over `extract`.

A model gives the classes of its weights or, for zero-shot classification, those that the body names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, WithJsonSchema

from sie_core.api.body.body import kind_of
from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS, MAX_LABEL_CHARS, MAX_LABELS
from sie_core.api.http.model_id import ModelId
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.schema import RootSchema, Schema
from sie_core.api.tei.encode import truncation
from sie_core.api.tei.schema import DIRECTION, MODEL, TRUNCATE, Direction
from sie_core.contracts import InferenceReply, InferenceRequest, InvalidInput, Item
from sie_core.logs import request_fields

_ONE_TEXT: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1}
_ACTIVATIONS: Final = {"none": "identity", "sigmoid": "sigmoid", "softmax": "softmax"}
_OTHER_KINDS: Final = ("entities", "relations", "objects", "data")


class TeiPredictParameters(DialectBody):
    """What the Hub's clients ask for beside the texts."""

    candidate_labels: list[Annotated[str, Field(max_length=MAX_LABEL_CHARS)]] | None = Field(
        default=None, max_length=MAX_LABELS, description="The classes, for a model that has none of its own."
    )
    multi_label: bool | None = Field(
        default=None, description="Whether each class is judged by itself; absent: the scores of all add up to 1."
    )
    hypothesis_template: str | None = Field(
        default=None, description="A sentence with `{}` once, where the label goes; absent: the model's."
    )
    function_to_apply: Literal["none", "sigmoid", "softmax"] | None = Field(
        default=None, description="What makes scores of logits; absent: what the model does."
    )
    top_k: int | None = Field(default=None, ge=1, description="How many of the best are returned; absent: all.")


class TeiPredictBody(DialectBody):
    """Texts to classify. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    inputs: Annotated[
        Any,
        WithJsonSchema(
            {
                "description": "A text, or a list of lists of one text each.",
                "anyOf": [
                    {"type": "string"},
                    _ONE_TEXT,
                    {"type": "array", "items": _ONE_TEXT, "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS},
                ],
            }
        ),
    ]
    raw_scores: bool | None = Field(default=None, description="Whether scores are logits; absent: no.")
    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION
    parameters: TeiPredictParameters | None = None


class TeiPrediction(Schema):
    """A class, and how sure the model is of it."""

    score: float
    label: str


class TeiPredictions(RootSchema[list[TeiPrediction] | list[list[TeiPrediction]]]):
    """The classes of a text, or of each text, by falling score."""


def predict_request(call: Call, body: TeiPredictBody) -> InferenceRequest:
    """Ask for the classes of texts.

    Raises:
        InvalidInput: An input is wrong.
    """
    parameters = body.parameters or TeiPredictParameters()
    texts = _texts(body.inputs)
    for text, name in texts:
        check_item_size(text, None, call.settings.max_item_text_bytes, name)
    return InferenceRequest(
        model=call.model(body.model),
        operation="extract",
        items=[Item(id=f"item-{place}", text=text) for place, (text, _) in enumerate(texts)],
        request_id=request_fields().request_id,
        labels=tuple(parameters.candidate_labels or ()),
        truncate=truncation(body.truncate, body.truncation_direction),
        demands=_demands(body, parameters),
        deadline=call.deadline,
    )


def predict_reply(call: Call, body: TeiPredictBody, reply: InferenceReply) -> Content:
    """Write the classes.

    Raises:
        InvalidInput: The model extracts something else.
    """
    if not any(read_item(item)["classifications"] for item in reply.items):
        _refuse_others(call.model(body.model), [read_item(item) for item in reply.items])
    most = body.parameters.top_k if body.parameters else None
    predictions = (
        [{"score": each["score"], "label": each["label"]} for each in read_item(item)["classifications"][:most]]
        for item in reply.items
    )
    return write_json(Entries(predictions) if _is_batch(body.inputs) else next(predictions), size_of(reply))


def _refuse_others(model: str, items: Sequence[dict[str, Any]]) -> None:
    if found := [kind for kind in _OTHER_KINDS if any(item[kind] for item in items)]:
        message = f"{model} gives {', '.join(found)} and no classes; call /v1/extract/{model}."
        raise InvalidInput(message, param="model")


def field_name(param: str, body: TeiPredictBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if param.startswith("items["):
        place = param.partition(".")[0].removeprefix("items")
        return f"inputs{place}[0]" if _is_batch(body.inputs) else "inputs"
    if param.startswith("labels"):
        return f"parameters.candidate_{param}"
    if param == "options.activation":
        return "raw_scores" if body.raw_scores else "parameters.function_to_apply"
    return param.replace("options.", "parameters.")


def _demands(body: TeiPredictBody, parameters: TeiPredictParameters) -> dict[str, Any]:
    """Return the parameters as options of a family."""
    activation = parameters.function_to_apply or ("none" if body.raw_scores else None)
    demands = {
        "activation": None if activation is None else _ACTIVATIONS[activation],
        "hypothesis_template": parameters.hypothesis_template,
        "multi_label": parameters.multi_label or None,
    }
    return {name: value for name, value in demands.items() if value is not None}


def _is_batch(inputs: Any) -> bool:
    return isinstance(inputs, list) and isinstance(inputs[0], list)


def _texts(inputs: Any) -> list[tuple[str, str]]:
    """List the texts of `inputs`, each with its place.

    Raises:
        InvalidInput: It holds something else, or pairs of texts.
    """
    if isinstance(inputs, str):
        return [(inputs, "inputs")]
    if not isinstance(inputs, list) or not inputs:
        raise InvalidInput(f"`inputs` must be a text or a list of texts, not {kind_of(inputs)}.", param="inputs")
    if len(inputs) > MAX_EMBEDDING_INPUTS:
        message = f"`inputs` has {len(inputs)} entries; {MAX_EMBEDDING_INPUTS} are allowed: send several requests."
        raise InvalidInput(message, param="inputs")
    if not isinstance(inputs[0], list):
        return [(_only_text(inputs, "inputs"), "inputs")]
    return [(_only_text(each, f"inputs[{place}]"), f"inputs[{place}][0]") for place, each in enumerate(inputs)]


def _only_text(texts: Any, param: str) -> str:
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"`{param}` must be a list of one text, not {kind_of(texts)}.", param=param)
    if len(texts) > 1:
        message = (
            f"`{param}` holds {len(texts)} texts, which is a pair, and pairs are not classified here; several texts "
            'are a list of lists: [["first"], ["second"]].'
        )
        raise InvalidInput(message, param=param)
    return cast("str", texts[0])


PREDICT: Final = Operation(TeiPredictBody, predict_request, predict_reply, field_name)
