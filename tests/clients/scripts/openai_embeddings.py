"""Make calls with OpenAI's client; tell the answers, and the errors as it raises them, as JSON."""

import json
import sys

import openai


def embed(client, keep=None, retries=0, **call):
    try:
        reply = client.with_options(max_retries=retries).embeddings.create(**call)
    except openai.APIStatusError as error:
        return {
            "raised": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "param": error.param,
            "type": error.type,
            "message": error.body["message"],
        }
    rows = reply.data if keep is None else [reply.data[place] for place in keep]
    return {
        "count": len(reply.data),
        "indices": [row.index for row in reply.data],
        "vectors": [row.embedding for row in rows],
        "usage": reply.usage.model_dump(),
        "model": reply.model,
    }


def main(url, calls):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    return {
        "answers": [embed(client, **call) for call in calls],
        "models": [model.id for model in client.models.list()],
    }


print(json.dumps(main(**json.load(sys.stdin))))
