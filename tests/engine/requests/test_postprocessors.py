"""Outputs made of others in the engine: MUVERA and SMVE of a multi-vector, by profile and by request."""

import asyncio
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from sie_fake.record import RECORD
from sie_sdk.scoring import maxsim
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceError, Item, ItemOutput, Postprocessor
from sie_core.postprocess import OUTPUT_DTYPES
from sie_core.postprocess.derived.muvera import Muvera, MuveraParameters
from sie_core.postprocess.derived.smve import Smve, SmveParameters
from tests.engine.conftest import bounded, queued, request, until

CONFIG = {"num_repetitions": 3, "num_simhash_projections": 2, "final_projection_dim": 24}
MUVERA = Muvera(MuveraParameters(**CONFIG), 4)
TEXTS = ["a red fox", "the red house by the sea", "fox"]
ONLY_TOKENS = {"multivector": {"dim": 4}}


@pytest.fixture
def write(engines):
    """Writes the config of a fake with profiles: `name={"loadtime": …, "runtime": …}`."""

    def config(name, encode=ONLY_TOKENS, **profiles):
        made = {
            profile: {"adapter_path": "fake", "max_batch_tokens": 16384, "adapter_options": options}
            for profile, options in {"default": {}, **profiles}.items()
        }
        text = yaml.safe_dump(
            {"sie_id": f"test/{name}", "package_backed": True, "tasks": {"encode": encode}, "profiles": made}
        )
        (engines.folder / f"{name}.yaml").write_text(text)
        return f"test/{name}"

    return config


async def encoded(engine, model, *texts, **fields):
    reply = await bounded(engine.infer(request(model, *texts, **fields)))
    return [unpack(item) for item in reply.items]


async def refused(engine, model, **fields):
    with pytest.raises(InferenceError) as caught:
        await encoded(engine, model, "a", **fields)
    return caught.value


def profile(config=CONFIG, **runtime):
    return {"loadtime": {"muvera_config": config}, "runtime": {"muvera": True, "output_types": ["dense"], **runtime}}


@pytest.mark.parametrize("input_type", ["query", "document", None])
async def test_a_profile_with_muvera_answers_dense_made_of_its_multivector(engines, write, input_type):
    model = write("late", muvera=profile())
    engine = await engines.start()
    tokens = await encoded(engine, model, *TEXTS, input_type=input_type)
    dense = await encoded(engine, f"{model}:muvera", *TEXTS, input_type=input_type)
    for one, other in zip(tokens, dense, strict=True):
        expected = MUVERA.encode(one["multivector"]["values"], is_query=input_type == "query")
        assert set(other) == {"dense"}
        assert (other["dense"]["dims"], other["dense"]["dtype"]) == (24, "float32")
        assert np.allclose(other["dense"]["values"], expected, atol=1e-6)


async def test_a_profile_with_smve_answers_sparse_made_of_its_multivector(engines, write):
    options = {"loadtime": {"smve_config": {"width": 32, "k": 3}}, "runtime": {"smve": {}, "output_types": ["sparse"]}}
    model = write("late", smve=options)
    engine = await engines.start()
    (tokens,) = await encoded(engine, model, TEXTS[1], input_type="query")
    (sparse,) = await encoded(engine, f"{model}:smve", TEXTS[1], input_type="query", output_dtype="float16")
    expected = Smve(SmveParameters(32, 3), 4).encode(tokens["multivector"]["values"], is_query=True)
    assert (sparse["sparse"]["dims"], sparse["sparse"]["dtype"]) == (32, "float16")
    assert sparse["sparse"]["indices"].tolist() == expected.indices.tolist()
    assert np.allclose(sparse["sparse"]["values"], expected.values, atol=1e-2)


@pytest.mark.parametrize("dtype", [each.name for each in OUTPUT_DTYPES])
async def test_the_dtype_comes_after_muvera_and_counts_dimensions(engines, write, dtype):
    model = write("late", muvera=profile(CONFIG | {"final_projection_dim": 21}, output_dtype=dtype))
    engine = await engines.start()
    (plain,) = await encoded(engine, f"{model}:muvera", TEXTS[1], output_dtype="float32")
    (cast,) = await encoded(engine, f"{model}:muvera", TEXTS[1])
    (row,) = (each for each in OUTPUT_DTYPES if each.name == dtype)
    assert (cast["dense"]["dims"], cast["dense"]["dtype"]) == (21, row.label)
    assert np.array_equal(cast["dense"]["values"], row.cast(plain["dense"]["values"]))


async def test_every_dtype_casts_each_token_of_a_multivector_alone(engines, write):
    model = write("late")
    engine = await engines.start()
    (plain,) = await encoded(engine, model, TEXTS[1])
    for row in OUTPUT_DTYPES:
        (cast,) = await encoded(engine, model, TEXTS[1], output_dtype=row.name)
        tokens = cast["multivector"]
        assert (tokens["token_dims"], tokens["num_tokens"], tokens["dtype"]) == (4, 6, row.label)
        assert np.array_equal(tokens["values"], [row.cast(token) for token in plain["multivector"]["values"]])


async def test_a_request_turns_muvera_on_for_a_model_with_vectors_of_its_own(engines):
    model = engines.model("plain", muvera_config=CONFIG)
    engine = await engines.start()
    (own,) = await encoded(engine, model, TEXTS[0])
    for switch in (True, {}, {"num_repetitions": 3}):
        (made,) = await encoded(
            engine, model, TEXTS[0], options={"muvera": switch}, output_types=("dense", "multivector")
        )
        expected = MUVERA.encode(made["multivector"]["values"], is_query=False)
        assert np.allclose(made["dense"]["values"], expected, atol=1e-6)
    for switch in (False, None):
        (off,) = await encoded(engine, model, TEXTS[0], options={"muvera": switch})
        assert np.array_equal(off["dense"]["values"], own["dense"]["values"])


async def test_a_request_without_any_parameters_gets_those_of_the_wire(engines, write):
    engine = await engines.start(load=[write("late")])
    (made,) = await encoded(engine, "test/late", TEXTS[0], options={"muvera": {}})
    assert made["dense"]["dims"] == min(10240, 40 * 64 * 4)
    assert np.any(made["dense"]["values"])


async def test_another_profile_of_the_loaded_model_is_taken_with_its_parameters_and_no_load(engines, write):
    model = write("late", muvera=profile(), wide=profile(CONFIG | {"final_projection_dim": None}))
    engine = await engines.start(load=[model, f"{model}:muvera"])
    (direct,) = await encoded(engine, f"{model}:muvera", TEXTS[0])
    (selected,) = await encoded(engine, model, TEXTS[0], options={"profile": "muvera"})
    (wide,) = await encoded(engine, model, TEXTS[0], options={"profile": "wide"})
    assert np.array_equal(selected["dense"]["values"], direct["dense"]["values"])
    assert wide["dense"]["dims"] == 3 * 4 * 4
    assert [event.kind for event in RECORD.events() if event.kind == "load"] == []


async def test_requests_with_and_without_muvera_share_a_batch(engines, write):
    hold = engines.hold()
    model = write("late", default={"loadtime": {"run_hold": str(hold)}})
    engine = await engines.start(load=[model])
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    tasks = [
        asyncio.create_task(engine.infer(request(model, text, options={"muvera": switch})))
        for text, switch in zip(TEXTS, [False, True, {}], strict=True)
    ]
    await until(lambda: queued(engine) == 3)
    hold.off()
    await bounded(asyncio.gather(first, *tasks))
    assert [run.size for run in RECORD.runs(model)] == [1, 3]


async def test_the_models_list_says_what_leaves_before_and_after_the_load(engines, write):
    model = write("late", muvera=profile(), smve={"runtime": {"smve": True}})
    engine = await engines.start()
    for _ in ("available", "loaded"):
        muvera, smve = engine.model(f"{model}:muvera"), engine.model(f"{model}:smve")
        assert (muvera.outputs, dict(muvera.dims)) == (("dense",), {"dense": 24})
        assert (smve.outputs, dict(smve.dims)) == (("sparse", "multivector"), {"sparse": 65536, "multivector": 4})
        await engine.load(f"{model}:muvera")
    assert engine.model(f"{model}:muvera").notes["muvera"] == "makes dense of 24 dimensions of multivector"
    assert dict(engine.model(model).dims) == {"multivector": 4}


async def test_a_profile_of_muvera_is_scored_by_late_interaction_all_the_same(engines, write):
    model = write("late", muvera=profile())
    engine = await engines.start()
    (query,) = await encoded(engine, model, "red fox", input_type="query")
    documents = await encoded(engine, model, *TEXTS, input_type="document")
    asked = replace(request(f"{model}:muvera", *TEXTS), operation="score", query=Item(text="red fox"))
    reply = await bounded(engine.infer(asked))
    expected = maxsim(query["multivector"]["values"], [each["multivector"]["values"] for each in documents])
    assert [unpack(item)["score"] for item in reply.items] == pytest.approx(expected, abs=1e-5)


async def test_tokens_that_are_not_finite_are_refused_before_they_are_hidden_in_a_sum(engines, write):
    model = write("late", muvera=profile(nan_text="[nan]"))
    engine = await engines.start()
    with pytest.raises(InferenceError) as caught:
        await encoded(engine, f"{model}:muvera", "fine", "a [nan] b")
    assert (caught.value.code, caught.value.param) == ("NON_FINITE_OUTPUT", "items[1]")


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"options": {"muvera": "yes"}}, "options.muvera", "'yes'; allowed: bool or map"),
        ({"options": {"muvera": {"seed": 7}}}, "options.muvera", "options.muvera.seed is 7.*muvera_config.*Give true"),
        ({"options": {"muvera_config": {"seed": 7}}}, "options.muvera_config", "read when the model loads"),
        ({"options": {"muvera": True}, "output_types": ("multivector",)}, "options.muvera", "makes dense.*multivector"),
        ({"output_types": ("dense",)}, "output_types", "gives multivector, not dense"),
        ({"options": {"muvera": True}, "dimensions": 16}, "dimensions", "dimensions is 16, and .* of 24 dimensions"),
        ({"options": {"muvera": True, "rival": True}}, "options.rival", "rival and muvera both make the dense"),
        ({"options": {"profile": "huge"}}, "options.profile", r"loadtime.muvera_config: .*MiB"),
        ({"options": {"profile": "typo"}}, "options.profile", "muvera_config.sead is no parameter.*Did you mean seed"),
    ],
)
async def test_wrong_use_is_answered_with_the_field_and_what_is_allowed(engines, write, fields, param, told):
    typo, huge = profile({"sead": 1}), profile({"num_repetitions": 10**6})
    model = write("late", default={"loadtime": {"muvera_config": CONFIG}}, huge=huge, typo=typo)
    rival = Postprocessor("rival", "multivector", "dense", create=lambda config, dims: MUVERA)
    engine = await engines.start(lambda plugins: with_postprocessor(plugins, rival))
    error = await refused(engine, model, **fields)
    assert (error.code, error.param) == ("INVALID_INPUT", param)
    assert_matches(told, error.message)


async def test_a_model_without_multivectors_knows_no_muvera(engines, write):
    model = write("plain", encode={"dense": {"dim": 8}})
    engine = await engines.start()
    error = await refused(engine, model, options={"muvera": True})
    assert error.param == "options.muvera"
    assert_matches("is no option of this model", error.message)


@pytest.mark.parametrize(
    ("encode", "options", "told"),
    [
        ({"dense": {"dim": 8}}, profile(), "muvera makes dense of multivector, and the model gives dense"),
        (ONLY_TOKENS, profile({"projection": 4}), "muvera_config.projection is no parameter.*projection_dim"),
        (ONLY_TOKENS, profile({"seed": "42"}), "muvera_config.seed is '42'; allowed: int"),
        (ONLY_TOKENS, profile({"projection_dim": 0}), "projection_dim is 0; the least allowed is 1"),
        (ONLY_TOKENS, profile({"projection_dim": 2.5}), "projection_dim is 2.5; allowed: int or null"),
        (ONLY_TOKENS, profile({"num_repetitions": 10**6}), "muvera_config: num_repetitions 1000000 x .*MiB"),
        (ONLY_TOKENS, {"loadtime": {"muvera_config": 3}}, "muvera_config is 3; allowed: map"),
        (ONLY_TOKENS, {"runtime": {"muvera": 1}}, "runtime.muvera is 1; allowed: bool or map"),
    ],
)
async def test_a_profile_that_cannot_be_served_fails_its_load_with_the_parameter(engines, write, encode, options, told):
    model = write("late", encode, broken=options)
    engine = await engines.start()
    error = await refused(engine, f"{model}:broken")
    assert error.code == "MODEL_LOAD_FAILED"
    assert_matches(told, error.message)


async def test_entries_of_a_profiles_switch_that_nothing_reads_are_told_to_the_operator(engines, write):
    model = write("late", muvera=profile(muvera={"num_repetitions": 3, "seed": 7}))
    engine = await engines.start(load=[f"{model}:muvera"])
    assert engine.model(f"{model}:muvera").notes["ignored options"] == "runtime.muvera.seed"


async def test_a_converter_that_makes_nothing_or_nan_never_answers_with_a_success(engines, write):
    class Nothing:
        dims = 4

        def convert(self, output, input_type):
            return ItemOutput()

    class NotANumber(Nothing):
        def convert(self, output, input_type):
            return ItemOutput(dense=np.full(4, np.nan, np.float32))

    engine = await engines.start(
        lambda plugins: with_postprocessor(
            with_postprocessor(
                plugins, Postprocessor("none", "multivector", "dense", create=lambda config, dims: Nothing())
            ),
            Postprocessor("nan", "multivector", "dense", create=lambda config, dims: NotANumber()),
        ),
        load=[write("late")],
    )
    assert (await refused(engine, "test/late", options={"none": True})).code == "INFERENCE_ERROR"
    assert (await refused(engine, "test/late", options={"nan": True})).code == "NON_FINITE_OUTPUT"


def with_postprocessor(plugins, postprocessor):
    return replace(plugins, postprocessors={**plugins.postprocessors, postprocessor.name: postprocessor})


def assert_matches(pattern, message):
    assert re.search(pattern, message), message


class Converting:
    """A converter that does one thing wrong."""

    dims = 3

    def __init__(self, wrong):
        self.wrong = wrong

    def convert(self, output, input_type):
        if self.wrong == "convert raises":
            raise KeyError("a table")
        if self.wrong == "makes nothing":
            return ItemOutput()
        width = 4 if self.wrong == "makes too much" else 3
        return ItemOutput(dense=np.ones(width, np.float32))


def made_wrongly(wrong):
    def create(parameters, dims):
        if wrong == "create raises":
            raise KeyError("a table")
        return None if wrong == "creates nothing" else Converting(wrong)

    return Postprocessor("odd", "multivector", "dense", create=create)


WRONG = ["create raises", "creates nothing", "convert raises", "makes nothing", "makes too much"]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_postprocessor_that_fails_fails_what_asks_for_it_and_is_named(engines, write, wrong, caplog):
    plain, turned_on = write("plain"), write("on", default={"runtime": {"odd": True}})
    engine = await engines.start(lambda plugins: replace(plugins, postprocessors={"odd": made_wrongly(wrong)}))

    assert (await refused(engine, plain, options={"odd": True})).code == "INFERENCE_ERROR"
    told = await refused(engine, turned_on)
    assert told.code == "MODEL_LOAD_FAILED"
    assert "the postprocessor 'odd' failed" in told.message
    assert "adapter" not in told.message
    assert len(await encoded(engine, plain, "a")) == 1
    assert "the postprocessor 'odd'" in caplog.text
    assert {model.id for model in engine.models()} >= {plain, turned_on}
