"""Ask a gateway for its capacity with the published client; tell it as JSON."""

import json
import sys

from sie_sdk import SIEClient


def main(url, gpu, model):
    with SIEClient(url) as client:
        try:
            every = client.get_capacity()
        except Exception as error:
            return {"refused": getattr(error, "code", type(error).__name__)}
        waited = client.wait_for_capacity(gpu, timeout_s=30, poll_interval_s=0.2)
        dims = {
            each["gpu"]: len(client.encode(model, {"text": "a"}, gpu=each["gpu"])["dense"]) for each in every["workers"]
        }
        return {"every": every, "waited": waited, "dims": dims}


print(json.dumps(main(**json.load(sys.stdin)), default=vars))
