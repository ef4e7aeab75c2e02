"""Watch a server with the published client; tell two statuses as JSON."""

import json
import sys

from sie_sdk import SIEClient


def main(url, mode):
    with SIEClient(url) as client:
        watching = client.watch(mode=mode)
        return [next(watching), next(watching)]


print(json.dumps(main(**json.load(sys.stdin))))
