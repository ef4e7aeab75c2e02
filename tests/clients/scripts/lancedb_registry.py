"""Build tables with functions of LanceDB's embedding registry; tell what is found as JSON.

`openai` is the registry's own, which knows OpenAI's names alone. `listed` stands for an integration over the SDK: a
table is made of what the server tells of a model before anybody asked it for a vector.
"""

import json
import os
import sys
import tempfile

import lancedb
from lancedb.embeddings import TextEmbeddingFunction, get_registry, register
from lancedb.pydantic import LanceModel, Vector
from sie_sdk import SIEClient

os.environ["OPENAI_API_KEY"] = "none"


@register("listed")
class Listed(TextEmbeddingFunction):
    url: str
    name: str

    def ndims(self):
        with SIEClient(self.url) as client:
            return client.get_model(self.name)["dims"]["dense"]

    def generate_embeddings(self, texts):
        with SIEClient(self.url) as client:
            return [result["dense"] for result in client.encode(self.name, [{"text": text} for text in texts])]


def search(function, texts, query):
    class Row(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()

    with tempfile.TemporaryDirectory() as folder:
        table = lancedb.connect(folder).create_table("rows", schema=Row)
        table.add([{"text": text} for text in texts])
        found = table.search(query).limit(len(texts)).to_list()
        return {"dims": table.schema.field("vector").type.list_size, "found": [row["text"] for row in found]}


def main(url, model, texts, query):
    registry = get_registry()
    listed = registry.get("listed").create(url=url, name=model)
    first = search(listed, texts, query)
    openai = registry.get("openai").create(name=model, base_url=f"{url}/v1", dim=first["dims"])
    return {"listed": first, "openai": search(openai, texts, query)}


print(json.dumps(main(**json.load(sys.stdin))))
