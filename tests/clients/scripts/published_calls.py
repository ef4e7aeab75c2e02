"""Make the calls of standard input with the published client, a line of JSON each; tell what each returned as one."""

import json
import sys

from sie_sdk import SIEClient
from sie_sdk.types import Item


def item(fields):
    images = [{"data": bytes.fromhex(image)} for image in fields.pop("images", ())]
    return Item(**fields, images=images) if images else Item(**fields)


def called(client, operation, items, query=None, **arguments):
    asked = {"query": item(query)} if query else {}
    return getattr(client, operation)(items=[item(each) for each in items], **asked, **arguments)


def told(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: told(part) for key, part in value.items()}
    return [told(part) for part in value] if isinstance(value, list) else value


with SIEClient(sys.argv[1]) as client:
    for line in sys.stdin:
        try:
            answer = {"returned": told(called(client, **json.loads(line)))}
        except Exception as error:
            answer = {"raised": repr(error)}
        print(json.dumps(answer), flush=True)
