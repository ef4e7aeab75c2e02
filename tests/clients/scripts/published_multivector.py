"""Encode with the published client's every dtype; tell what came as JSON."""

import json
import sys

from sie_sdk import SIEClient


def told(array):
    return {"dtype": str(array.dtype), "values": array.tolist()}


def main(url, model, text, dtypes):
    with SIEClient(url) as client:
        query = client.encode(model, {"text": text}, output_types=["multivector"], is_query=True)
        return {
            "query": told(query["multivector"]),
            "multivector": {
                dtype: told(
                    client.encode(model, {"text": text}, output_types=["multivector"], output_dtype=dtype)[
                        "multivector"
                    ]
                )
                for dtype in dtypes
            },
            "dense": {
                dtype: told(client.encode(f"{model}:muvera", {"text": text}, output_dtype=dtype)["dense"])
                for dtype in dtypes
            },
            "selected": told(
                client.encode(model, {"text": text}, output_types=["dense"], options={"profile": "muvera"})["dense"]
            ),
            "sparse": client.encode(f"{model}:smve", {"text": text}, output_types=["sparse"])["sparse"][
                "indices"
            ].tolist(),
        }


print(json.dumps(main(**json.load(sys.stdin))))
