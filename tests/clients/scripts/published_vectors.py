"""Encode texts with the published client and a token; tell the vectors as JSON."""

import json
import sys

from sie_sdk import SIEClient


def main(url, token, model, texts):
    with SIEClient(url, api_key=token) as client:
        return [result["dense"].tolist() for result in client.encode(model, [{"text": text} for text in texts])]


print(json.dumps(main(**json.load(sys.stdin))))
