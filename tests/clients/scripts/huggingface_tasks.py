"""Compare and classify texts, and ask after models, with the client of the Hugging Face Hub."""

from __future__ import annotations

import json
import sys

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

ask = json.load(sys.stdin)


def similarity(url: str) -> list | dict:
    try:
        return InferenceClient(model=url, token="none").sentence_similarity(ask["source"], ask["sentences"])
    except HfHubHTTPError as error:
        return {"status": error.response.status_code, "body": error.response.json()}


def classes(**arguments: object) -> list | dict:
    client = InferenceClient(model=ask["classifier"], token="none")
    try:
        return [[each.label, each.score] for each in client.zero_shot_classification(**arguments)]
    except HfHubHTTPError as error:
        return {"status": error.response.status_code, "body": error.response.json()}


def is_well(url: str) -> bool:
    return InferenceClient(provider="hf-inference", token="none").health_check(model=url)


json.dump(
    {
        "similarities": [similarity(url) for url in ask["urls"]],
        "classes": [classes(**arguments) for arguments in ask["texts"]],
        "well": [is_well(url) for url in ask["asked_after"]],
    },
    sys.stdout,
)
