"""Ask one model of every head with the published client; tell what came as JSON."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.types import Item


def told(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: told(part) for key, part in value.items() if key not in ("request", "timing")}
    return [told(part) for part in value] if isinstance(value, list) else value


def asked(client, model, operation, texts, png, query, labels, output_types):
    items = [Item(id=f"item-{place}", text=text) for place, text in enumerate(texts)]
    if operation == "score":
        return client.score(model, Item(text=query), items)
    if operation == "extract":
        return client.extract(model, items, labels=labels)
    if png:
        items.append(Item(id=f"item-{len(items)}", images=[{"data": bytes.fromhex(png), "format": "png"}]))
    return client.encode(model, items, output_types=output_types)


def main(url, calls):
    with SIEClient(url) as client:
        return [told(asked(client, **call)) for call in calls]


print(json.dumps(main(**json.load(sys.stdin))))
