"""Embed with LangChain; tell vectors and errors as JSON.

tiktoken would download the vocabulary of the encoding LangChain falls back to. One with a token a byte stands in:
what travels are ids of a tokenizer that is not the model's, which is the point.
"""

import json
import sys

import openai
import tiktoken
from langchain_openai import OpenAIEmbeddings

tiktoken.registry.ENCODINGS["cl100k_base"] = tiktoken.Encoding(
    "cl100k_base", pat_str=r"(?s:.)", mergeable_ranks={bytes([byte]): byte for byte in range(256)}, special_tokens={}
)


def attempt(embed, text):
    try:
        return {"vectors": embed(text)}
    except openai.APIStatusError as error:
        return {"status": error.status_code, "code": error.code, "message": error.body["message"]}


def main(url, model, texts, **settings):
    embeddings = OpenAIEmbeddings(model=model, base_url=f"{url}/v1", api_key="none", max_retries=0, **settings)
    return {
        "documents": [attempt(embeddings.embed_documents, [text]) for text in texts],
        "together": attempt(embeddings.embed_documents, texts),
        "query": attempt(embeddings.embed_query, texts[0]),
    }


print(json.dumps(main(**json.load(sys.stdin))))
