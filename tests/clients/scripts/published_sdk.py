"""Use the published client as its users do; tell what came as JSON."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError
from sie_sdk.types import Item


def told(result):
    vector = result["dense"]
    rest = {key: value for key, value in result.items() if key not in ("dense", "request")}
    return {**rest, "dtype": str(vector.dtype), "dense": vector.tolist()}


def main(url, model, texts):
    with SIEClient(url) as client:
        try:
            client.encode("sentence-transformers/all-MiniLM-L6-v3", Item(text="x"))
        except RequestError as error:
            refused = {"code": error.code, "status": error.status_code, "message": str(error)}
        try:
            client.encode(model, [])
        except RequestError as error:
            empty = {"code": error.code, "status": error.status_code}
        return {
            "one": told(client.encode(model, Item(id="a", text=texts[0]))),
            "many": [told(result) for result in client.encode(model, [Item(text=text) for text in texts])],
            "float16": told(client.encode(model, {"text": texts[0]}, output_dtype="float16")),
            "int8": told(client.encode(model, {"text": texts[0]}, output_dtype="int8")),
            "query": told(client.encode(model, {"text": texts[0]}, is_query=True)),
            "models": client.list_models(),
            "model": client.get_model(model),
            "refused": refused,
            "empty": empty,
        }


print(json.dumps(main(**json.load(sys.stdin))))
