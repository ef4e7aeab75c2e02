"""Extract with the published client as its users do; tell what came as JSON."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.types import Item

ask = json.load(sys.stdin)
with SIEClient(ask["url"]) as client:
    results = client.extract(
        ask["model"],
        [Item(id=f"i{place}", text=text) for place, text in enumerate(ask["texts"])],
        labels=ask["labels"],
        options={"threshold": 0.5},
    )
print(json.dumps([{"id": result["id"], "entities": result["entities"]} for result in results]))
