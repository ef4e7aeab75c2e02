"""Score, extract and take every kind of output with the published client; tell what came as JSON."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError, ServerError
from sie_sdk.types import Item


def told(value):
    if hasattr(value, "tolist"):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, dict):
        return {key: told(part) for key, part in value.items() if key != "request"}
    return [told(part) for part in value] if isinstance(value, list) else value


def attempt(call, *arguments, **settings):
    try:
        return told(call(*arguments, **settings))
    except (RequestError, ServerError) as error:
        return {"raised": type(error).__name__, "code": error.code, "param": error.param, "message": str(error)}


def main(url, query, documents, text, png):
    png = bytes.fromhex(png)
    with SIEClient(url) as client:
        items = [Item(text=document) for document in documents]
        named = [Item(id=f"d{place}", text=document) for place, document in enumerate(documents)]
        return {
            "reranked": attempt(client.score, "sie-fake/reranker", Item(id="q", text=query), named),
            "compared": attempt(client.score, "sie-fake/embedder", Item(text=query), items,
                                options={"output_types": ["sparse"]}),
            "cannot score": attempt(client.score, "sie-fake/extractor", Item(text=query), items),
            "too many": attempt(client.score, "sie-fake/reranker", Item(text=query), items[:1] * 1001),
            "extracted": attempt(client.extract, "sie-fake/extractor", [Item(id="a", text=text), Item(text="none")],
                                 labels=["person", "place"], options={"threshold": 0.0}),
            "one": attempt(client.extract, "sie-fake/extractor", Item(text=text), labels=["person"],
                           output_schema={"properties": {"person": {}}}),
            "no labels": attempt(client.extract, "sie-fake/extractor", Item(text=text)),
            "seen": attempt(client.extract, "sie-fake/media", Item(images=[{"data": png, "format": "png"}])),
            "heard": attempt(client.extract, "sie-fake/media", Item(audio={"data": b"\x00\x01" * 9, "format": "wav"})),
            "outputs": attempt(client.encode, "sie-fake/embedder", Item(text=text),
                               output_types=["dense", "sparse", "multivector"]),
            "image": attempt(client.encode, "sie-fake/media", Item(images=[{"data": png, "format": "png"}])),
            "image to text": attempt(client.encode, "sie-fake/embedder", Item(images=[{"data": png}])),
            "models": {model["name"]: model["outputs"] for model in client.list_models()},
        }  # fmt: skip


print(json.dumps(main(**json.load(sys.stdin))))
