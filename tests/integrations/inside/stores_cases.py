"""Chroma, LanceDB and Qdrant, local, filled and searched through a live server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import chromadb
import lancedb
import numpy as np
import pytest
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel, Vector
from qdrant_client import QdrantClient, models
from sie_integrations.chroma import SIEEmbeddingFunction
from sie_integrations.lancedb import SIEEmbeddingFunction as LanceFunction
from sie_sdk import SIEClient

URL, EMBEDDER = os.environ["URL"], "sie-fake/embedder"
PLANTED = json.loads(os.environ["PLANTED"])


def right(found: list[str]) -> float:
    return float(np.mean([a == b for a, b in zip(found, PLANTED["answers"], strict=True)]))


def test_chroma_finds_planted_documents_and_keeps_the_function(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("KEY", "secret-key")
    function = SIEEmbeddingFunction(os.environ["DENSE"], URL, "KEY")
    database = chromadb.PersistentClient(str(tmp_path))
    collection = database.create_collection("planted", embedding_function=function)
    names = [str(place) for place in range(len(PLANTED["documents"]))]
    collection.add(ids=names, documents=PLANTED["documents"])
    # The function is made of what the collection kept.
    again = database.get_collection("planted")
    found = again.query(query_texts=PLANTED["queries"], n_results=1)["documents"]
    assert right([each[0] for each in found]) >= 0.99
    assert not any(b"secret-key" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_chroma_embeds_queries_as_queries() -> None:
    function = SIEEmbeddingFunction(EMBEDDER, URL)
    with SIEClient(URL) as client:
        query, document = (client.encode(EMBEDDER, "fox", input_type=each)["dense"] for each in ("query", "document"))
    np.testing.assert_array_equal(function(["fox"])[0], document)
    np.testing.assert_array_equal(function.embed_query(["fox"])[0], query)


def test_lancedb_finds_planted_documents_and_keeps_the_function(tmp_path: Path) -> None:
    function = get_registry().get("sie").create(name=os.environ["DENSE"], base_url=URL)

    class Row(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()

    table = lancedb.connect(tmp_path).create_table("planted", schema=Row)
    table.add([{"text": each} for each in PLANTED["documents"]])
    again = lancedb.connect(tmp_path).open_table("planted")
    found = [again.search(query).limit(1).to_list()[0]["text"] for query in PLANTED["queries"]]
    assert right(found) >= 0.99
    with pytest.raises(ValueError, match="Sensitive key 'api_key'"):
        LanceFunction.create(name=EMBEDDER, base_url=URL, api_key="secret-key")


def test_qdrant_finds_planted_documents_by_multi_vectors() -> None:
    database = QdrantClient(":memory:")
    vectors = models.VectorParams(
        size=16,
        distance=models.Distance.DOT,
        multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
    )
    database.create_collection("planted", vectors_config=vectors)
    with SIEClient(URL) as client:
        many = client.encode_many(EMBEDDER, PLANTED["documents"], output_types=["multivector"], input_type="document")
        points = [
            models.PointStruct(id=place, vector=result["multivector"].tolist(), payload={"text": text})
            for place, (result, text) in enumerate(zip(many.results, PLANTED["documents"], strict=True))
        ]
        database.upsert("planted", points)
        asked = client.encode_many(EMBEDDER, PLANTED["queries"], output_types=["multivector"], input_type="document")
    found = [
        database.query_points("planted", query=each["multivector"].tolist(), limit=1).points[0].payload["text"]
        for each in asked.results
    ]
    assert right(found) >= 0.99
