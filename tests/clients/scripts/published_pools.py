"""Lease workers with the published client; tell what came as JSON."""

import json
import sys
import time

from sie_sdk import SIEClient
from sie_sdk.client.errors import SIEError


def attempt(call, *arguments, **settings):
    try:
        return call(*arguments, **settings)
    except SIEError as error:
        return {"raised": type(error).__name__, "message": str(error)}


def main(url, model):
    with SIEClient(url) as client:
        told = {"created": attempt(client.create_pool, "published", {"l4": 1})}
        ends = time.monotonic() + 60
        while (got := client.get_pool("published"))["status"]["state"] != "active" and time.monotonic() < ends:
            time.sleep(0.2)
        told["got"] = got
        told["encoded"] = len(client.encode(model, {"text": "theirs"}, gpu="published/l4")["dense"])
        told["refused"] = attempt(client.create_pool, "other", {"h100": 1})
        told["default"] = attempt(client.delete_pool, "default")
        told["deleted"] = client.delete_pool("published")
        told["again"] = client.delete_pool("published")
        told["gone"] = client.get_pool("published")
    return told


print(json.dumps(main(**json.loads(sys.stdin.read())), default=str))
