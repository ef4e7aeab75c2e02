"""The list of routes: grouped by purpose, each example with a model of this server that answers it with a 200."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from sie_core.api.inference.direct import DirectApp
from sie_core.api.openapi.examples import NEEDS
from sie_core.api.openapi.purposes import PURPOSES
from sie_core.api.pages.listing import Trial, examples, operations, purposes
from sie_core.contracts import ModelInfo

DENSE = ModelInfo(
    "org/dense", ("text",), ("dense",), dims={"dense": 4}, state="available", operations=("encode", "score")
)


def trials(document: dict[str, Any], models: list[ModelInfo]) -> list[Trial]:
    return [trial for purpose in purposes(document, models) for route in purpose.routes for trial in route.trials]


@pytest.fixture
def document(app: DirectApp) -> dict[str, Any]:
    return app.openapi()


def test_every_path_is_listed_once_below_its_purpose(document: dict[str, Any]) -> None:
    listed = purposes(document, [])
    assert [purpose.name for purpose in listed] == list(PURPOSES)
    routes = [route for purpose in listed for route in purpose.routes]
    paths = [(path, route.method) for route in routes for path in route.paths]
    assert sorted(paths) == sorted((path, method) for path, method, _ in operations(document))
    assert len({route.anchor for route in routes}) == len(routes)
    embed = next(route for route in routes if "/embed" in route.paths)
    assert embed.paths == ["/embed", "/tei/{model}/embed"]


def test_a_tag_that_nobody_described_is_listed_last_under_its_own_name(document: dict[str, Any]) -> None:
    operation = document["paths"]["/healthz"]["get"]
    other = document | {"paths": {"/x": {"get": operation | {"tags": ["mine"]}}, "/": document["paths"]["/"]}}
    assert [purpose.title for purpose in purposes(other, [])][-1] == "mine"


def test_an_example_names_a_model_that_is_here_and_loaded_ones_first(document: dict[str, Any]) -> None:
    here = replace(DENSE, id="org/here", available=True)
    models = [DENSE, here, replace(here, id="org/loaded", state="loaded")]
    found = {(trial.path, trial.title): trial for trial in trials(document, models)}
    trial = found["/v1/encode/{model}", "Vectors of two texts"]
    assert (trial.model, trial.is_here, trial.offered) == ("org/loaded", True, ("org/loaded", "org/here"))
    assert trial.url == "/v1/encode/org/loaded"
    named = found["/v1/embeddings", "Vectors of two texts"]
    assert (named.body or {})["model"] == "org/loaded"
    sparse = found["/v1/encode/{model}", "A sparse vector"]
    assert (sparse.model, sparse.is_here) == ("", False)
    absent = {(trial.path, trial.title): trial for trial in trials(document, [DENSE])}
    assert absent["/v1/encode/{model}", "Vectors of two texts"].model == "org/dense"
    assert not absent["/v1/encode/{model}", "Vectors of two texts"].is_here


def test_every_example_is_answered_by_the_server_that_offers_it(minilm_server: str) -> None:
    with httpx.Client(base_url=minilm_server, timeout=60) as client:
        document = client.get("/openapi.json").json()
        told = client.get("/v1/models?available=true").json()["models"]
        models = [
            ModelInfo(
                each["name"], (), tuple(each["outputs"]), dims={}, state=each["state"],
                operations=tuple(each["operations"]), available=True,
            )
            for each in told
        ]  # fmt: skip
        sent = trials(document, models)
        assert {trial.method for trial in sent} == {"get", "post"}
        assert len(sent) > 30
        assert [trial.path for trial in sent if not trial.is_here] == ["/classify"]  # no model here has classes
        for trial in (each for each in sent if each.is_here):
            answer = client.request(trial.method, trial.url, json=trial.body)
            assert answer.status_code == 200, (trial, answer.text)


def test_what_an_example_needs_is_an_output_an_operation_or_classes(document: dict[str, Any]) -> None:
    needs = {example[NEEDS] for _, _, operation in operations(document) for example in examples(operation).values()}
    assert needs == {"dense", "sparse", "multivector", "score", "extract", "classes"}
