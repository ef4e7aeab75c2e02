"""Rerank and embed with litellm, through whichever provider; answers what it understood, or what it raised."""

from __future__ import annotations

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for a price list

import litellm
import openai

litellm.suppress_debug_info = True
COMMON = {"api_key": "none", "max_retries": 0}


def rerank(arguments: dict) -> dict:
    told = litellm.rerank(**arguments, **COMMON)
    return {
        "results": [[each["index"], each["relevance_score"]] for each in told.results],
        "documents": [(each.get("document") or {}).get("text") for each in told.results],
    }


def embedding(arguments: dict) -> dict:
    told = litellm.embedding(**arguments, **COMMON)
    return {"vectors": [each["embedding"] for each in told.data], "tokens": told.usage.total_tokens}


def attempt(arguments: dict) -> dict:
    do = {"rerank": rerank, "embedding": embedding}[arguments.pop("do")]
    try:
        return do(arguments)
    except openai.APIError as error:  # what litellm's own errors are
        return {"raised": type(error).__name__, "message": str(error)}


answers = [attempt(arguments) for arguments in json.load(sys.stdin)["calls"]]
json.dump(answers, sys.stdout)
