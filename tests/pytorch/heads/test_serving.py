"""One model a head behind a live server, asked by our own client, and held to the plugin author's kit."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sie_kit import checks_of, failures
from sie_sdk import RequestError, SIEClient
from sie_sdk.scoring import maxsim
from transformers import AutoModelForMaskedLM

from tests.conftest import run_server
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import deviation
from tests.pytorch.encoders import reference as dense_reference
from tests.pytorch.heads.bge_m3 import expected_vectors, expected_weights, pickle_layers, save_bge_m3
from tests.pytorch.heads.colbert import EXPANSION, encode, furthest, save_colbert
from tests.pytorch.heads.colbert import reference as colbert_reference
from tests.pytorch.heads.splade import PROMPTS, reference, save_splade, spelled_out
from tests.pytorch.heads.test_lookup import save_routed
from tests.pytorch.models import HIDDEN, VOCABULARY, write_checkpoint

BOUND = 5e-5
TEXTS = ["", "a query, a document.", *make_texts(8, 12, seed=15)]
MODELS = ("test/splade", "test/routed", "test/colbert", "test/m3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    for name in ("bert", "modernbert"):
        write_checkpoint(name, folder / f"bases/{name}-mlm", loader=AutoModelForMaskedLM)
    for name in ("bert", "xlm-roberta"):
        write_checkpoint(name, folder / "bases" / name)
    models = folder / "models/test"
    save_splade(folder / "bases/bert-mlm", models / "splade", prompts=PROMPTS)
    save_routed(folder / "bases/modernbert-mlm", models / "routed")
    save_colbert(folder / "bases/bert", models / "colbert", expansion=EXPANSION)
    save_bge_m3(folder / "bases/xlm-roberta", models / "m3")
    save_bge_m3(folder / "bases/xlm-roberta", models / "pickled")
    found = pickle_layers(models / "pickled")["colbert_linear.pt"]
    pins = {"colbert_linear.pt": {"size": found.size, "sha256": found.sha256}}
    config = {"sie_id": "test/pickled", "weights_path": str(models / "pickled"), "pickles": pins}
    (folder / "models/pickled.yaml").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[SIEClient]:
    environment = {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"}
    with run_server(folder, environment) as server, SIEClient(server.url) as client:
        yield client


def weights(client: SIEClient, model: str, **fields: object) -> np.ndarray:
    rows = np.zeros((len(TEXTS), VOCABULARY), dtype=np.float32)
    for row, result in zip(rows, client.encode(model, TEXTS, **fields), strict=True):
        row[result["sparse"]["indices"]] = result["sparse"]["values"]
    return rows


@pytest.mark.parametrize("model", ["test/splade", "test/routed"])
def test_sparse_vectors_are_served(model: str, client: SIEClient, folder: Path) -> None:
    theirs = reference(folder / "models" / model)
    for input_type in ("query", "document"):
        ours = weights(client, model, input_type=input_type)
        assert deviation(ours, spelled_out(theirs, TEXTS, input_type)) <= BOUND


def test_multi_vectors_are_served_and_rank_by_late_interaction(client: SIEClient, folder: Path) -> None:
    theirs = colbert_reference(folder / "models/test/colbert")
    for input_type in ("query", "document"):
        ours = [each["multivector"] for each in client.encode("test/colbert", TEXTS, input_type=input_type)]
        assert furthest(ours, encode(theirs, TEXTS, input_type)) <= BOUND
    (query,) = encode(theirs, ["a query"], "query")
    expected = maxsim(query, encode(theirs, TEXTS, "document"))
    scores = {each["item_id"]: each["score"] for each in client.score("test/colbert", "a query", TEXTS)["scores"]}
    assert np.allclose([scores[f"item-{number}"] for number in range(len(TEXTS))], expected, atol=1e-3)


def test_bge_m3_gives_its_three_outputs_to_one_request(client: SIEClient, folder: Path) -> None:
    model = dense_reference(folder / "models/test/m3")
    asked = ("dense", "sparse", "multivector")
    answers = client.encode("test/m3", TEXTS, output_types=asked)
    assert deviation(np.stack([each["dense"] for each in answers]), model.encode(TEXTS)) <= BOUND
    expected = expected_weights(model, folder / "models/test/m3", TEXTS, VOCABULARY)
    assert deviation(weights(client, "test/m3", output_types=asked), expected.astype(np.float32)) <= BOUND
    vectors = expected_vectors(model, folder / "models/test/m3", TEXTS)
    assert furthest([each["multivector"] for each in answers], vectors) <= BOUND
    assert client.get_model("test/m3")["dims"] == {"dense": HIDDEN, "sparse": VOCABULARY, "multivector": HIDDEN}


def test_a_layer_nobody_pinned_is_not_listed_and_its_error_names_the_remedy(client: SIEClient) -> None:
    asked = client.get_model("test/pickled")
    assert (asked["state"], asked["outputs"]) == ("available", ["dense", "multivector"])
    client.encode("test/pickled", "a")
    with pytest.raises(RequestError, match=r"gives dense, multivector, not sparse\. .*pin it, or write it beside"):
        client.encode("test/pickled", "a", output_types=["sparse"])
    answer = client.encode("test/pickled", "a", output_types=["dense", "multivector"])
    assert answer["multivector"].shape[1] == HIDDEN


def test_an_output_a_model_lacks_is_refused_with_those_it_has(client: SIEClient) -> None:
    client.encode("test/splade", "a")
    with pytest.raises(RequestError, match="gives sparse, not dense"):
        client.encode("test/splade", "a", output_types=["dense"])


@pytest.mark.parametrize("model", ["test/routed", "test/m3"])
def test_each_sort_of_head_conforms(model: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_MODELS_DIR", str(folder / "models"))
    checks = [each for each in checks_of("sie-pytorch", models=[model]) if each.part == f"model {model}"]
    assert checks
    assert not failures(checks)
