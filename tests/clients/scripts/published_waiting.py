"""Ask with the published client while no worker is there, for an error and then for an answer; tell both as JSON."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.client.errors import ProvisioningError


def main(url, model):
    with SIEClient(url) as client:
        try:
            refused = client.encode(model, {"text": "theirs"}, wait_for_capacity=False)
        except ProvisioningError as error:
            refused = {"raised": type(error).__name__, "retry_after": error.retry_after}
        answered = client.encode(model, {"text": "theirs"})
        return {"refused": refused, "dims": len(answered["dense"])}


print(json.dumps(main(**json.load(sys.stdin))))
