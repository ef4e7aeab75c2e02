"""Encode and score images with the published client; tell what came as JSON."""

import io
import json
import sys

import numpy as np
from PIL import Image
from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError
from sie_sdk.types import Item


def main(url, model, texts, png, broken, path):
    data = bytes.fromhex(png)
    image = Image.open(io.BytesIO(data))
    held = {"bytes": {"data": data, "format": "png"}, "path": path, "pil": image, "array": np.asarray(image)}
    with SIEClient(url) as client:
        told = {name: client.encode(model, Item(images=[each]))["dense"].tolist() for name, each in held.items()}
        told["texts"] = [
            result["dense"].tolist() for result in client.encode(model, [Item(text=text) for text in texts])
        ]
        pictures = [Item(id="picture", images=[held["bytes"]]), Item(id="text", text=texts[0])]
        told["scores"] = client.score(model, Item(text=texts[0]), pictures)["scores"]
        try:
            client.encode(model, [Item(text="a"), Item(images=[{"data": bytes.fromhex(broken), "format": "png"}])])
        except RequestError as error:
            told["refused"] = {"code": error.code, "param": error.param}
    return told


if __name__ == "__main__":
    json.dump(main(**json.load(sys.stdin)), sys.stdout)
