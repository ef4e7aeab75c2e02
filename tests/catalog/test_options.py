"""Options of requests and profiles: what is checked, against what, and what the error says."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.catalog import check_profile, resolve_options
from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.yaml_text import load_yaml
from sie_core.contracts import InvalidInput, ModelConfig, ModelFamily, ModelLoadError, Option, Profile, ResolvedModel

FAMILY = ModelFamily(
    "demo",
    "x:load",
    lambda card: None,
    options=(
        Option("pooling", "load", str, description="How tokens become one vector.", choices=("mean", "cls")),
        Option("normalize", "finish", bool, description="Unit length."),
        Option("threshold", "finish", float, description="Least score.", minimum=0, maximum=1),
        Option("window", "prepare", int, description="Tokens of a window.", minimum=1),
        Option("mode", "run", (str, int), description="Either.", choices=("a", 1)),
    ),
)


def model(adapter_path: str | None = None, **profiles: dict[str, Any]) -> ResolvedModel:
    made = {
        name: Profile(name, adapter_path=adapter_path, runtime=runtime)
        for name, runtime in {"default": {}, **profiles}.items()
    }
    return ResolvedModel("org/m", ModelConfig("org/m", hf_id="org/m", profiles=made), made["default"])


def test_the_request_lies_over_the_profile() -> None:
    served = model(default={"normalize": True, "threshold": 0.5, "output_types": ["sparse"], "pooling": "cls"})
    options = resolve_options(FAMILY, served, {"threshold": 1, "window": 3})
    assert options.family == {"normalize": True, "threshold": 1, "window": 3}
    assert options.output_types == ("sparse",)
    assert options.profile.name == "default"


def test_wishes_are_followed_where_the_family_knows_them_and_lie_under_the_request() -> None:
    wishes = {"threshold": 0.25, "window": 4, "activation": "sigmoid", "pooling": "cls"}
    options = resolve_options(FAMILY, model(default={"threshold": 0.5}), {"window": 3}, wishes=wishes)
    assert options.family == {"threshold": 0.25, "window": 3}


def test_what_is_read_elsewhere_is_passed_over_and_named_and_what_nobody_reads_is_refused() -> None:
    asked = {"threshold": 0.5, "activation": [], "is_query": True, "lora_id": None}
    options = resolve_options(FAMILY, model(), asked, "score", elsewhere=["activation", "window"])
    assert (options.family, options.ignored) == ({"threshold": 0.5}, ("activation", "is_query"))
    with pytest.raises(InvalidInput, match=r"options\.activatoin is no option of this model"):
        resolve_options(FAMILY, model(), asked | {"activatoin": 1}, "score", elsewhere=["activation"])


def test_demands_lie_over_the_request_and_are_never_passed_over() -> None:
    options = resolve_options(FAMILY, model(), {"threshold": 0.5}, demands={"threshold": 1, "window": 2})
    assert options.family == {"threshold": 1, "window": 2}
    with pytest.raises(InvalidInput) as raised:
        resolve_options(FAMILY, model(), {}, demands={"activation": "sigmoid"}, elsewhere=["activation"])
    assert raised.value.param == "options.activation"


def test_null_means_not_said() -> None:
    options = resolve_options(FAMILY, model(default={"threshold": 0.5}), {"threshold": None, "is_query": None})
    assert options.family == {"threshold": 0.5}
    assert options.input_type is None


def test_the_engines_own_options_fill_their_fields_and_never_reach_the_family() -> None:
    options = resolve_options(
        FAMILY,
        model(),
        {
            "is_query": True,
            "instruction": "find",
            "output_types": ["dense", "sparse"],
            "output_dtype": "int8",
            "overflow_policy": "error",
            "dimensions": 64,
        },
    )
    assert options.family == {}
    assert options.input_type == "query"
    assert options.instruction == "find"
    assert options.output_types == ("dense", "sparse")
    assert options.output_dtype == "int8"
    assert options.truncate == "error"
    assert options.dimensions == 64


@pytest.mark.parametrize(("policy", "truncate"), [("default", None), ("truncate_text", "end"), ("error", "error")])
def test_overflow_policy_is_another_spelling_of_truncate(policy: str, truncate: str | None) -> None:
    assert resolve_options(FAMILY, model(), {"overflow_policy": policy}).truncate == truncate


def test_is_query_false_asks_for_a_document() -> None:
    assert resolve_options(FAMILY, model(), {"is_query": False}).input_type == "document"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("treshold", 0.1, ["Did you mean threshold", "normalize", "output_dtype"]),
        ("pooling", "cls", ["when the model loads"]),
        ("normalize", 1, ["1", "bool"]),
        ("threshold", True, ["True", "float"]),
        ("threshold", "0.5", ["'0.5'", "float"]),
        ("threshold", 1.5, ["1.5", "most allowed is 1"]),
        ("threshold", -1, ["-1", "least allowed is 0"]),
        ("threshold", math.nan, ["nan", "finite"]),
        ("threshold", math.inf, ["inf", "finite"]),
        ("window", 2.0, ["2.0", "int"]),
        ("window", True, ["True", "int"]),
        ("window", 0, ["0", "least allowed is 1"]),
        ("window", -(10**400), ["least allowed is 1"]),
        ("mode", "b", ["'b'", "'a', 1"]),
        ("mode", [], ["[]", "str or int"]),
        ("is_query", "yes", ["'yes'", "true or false"]),
        ("instruction", 3, ["3", "a text"]),
        ("output_types", [], ["[]", "dense, sparse, multivector"]),
        ("output_types", "dense", ["'dense'", "dense, sparse, multivector"]),
        ("output_types", [{"a": 1}], ["dense, sparse, multivector"]),
        ("output_dtype", 4, ["4", "a text"]),
        ("overflow_policy", "cut", ["'cut'", "truncate_text"]),
        ("overflow_policy", ["error"], ["truncate_text"]),
        ("dimensions", 0, ["0", "from 1"]),
        ("dimensions", 64.0, ["64.0"]),
        ("dimensions", True, ["True"]),
        ("profile", "nope", ["'nope'", "default"]),
        ("profile", 7, ["7", "default"]),
    ],
)
def test_a_wrong_option_names_itself_its_value_and_what_is_allowed(name: str, value: Any, said: list[str]) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolve_options(FAMILY, model(), {name: value})
    assert raised.value.code == "INVALID_INPUT"
    assert raised.value.param == f"options.{name}"
    for part in said:
        assert part in raised.value.message


def test_options_profile_takes_the_other_profiles_runtime() -> None:
    served = model(default={"threshold": 0.1}, strict={"threshold": 0.9, "output_dtype": "int8"})
    options = resolve_options(FAMILY, served, {"profile": "strict", "normalize": False})
    assert options.family == {"threshold": 0.9, "normalize": False}
    assert options.output_dtype == "int8"
    assert options.profile.name == "strict"


def test_options_profile_cannot_change_what_is_read_at_load() -> None:
    served = model(default={"pooling": "mean"}, cls={"pooling": "cls"})
    with pytest.raises(InvalidInput, match="org/m:cls") as raised:
        resolve_options(FAMILY, served, {"profile": "cls"})
    assert raised.value.param == "options.profile"


def test_a_profile_written_for_this_family_may_hold_known_options_only() -> None:
    with pytest.raises(ModelLoadError, match=r"runtime\.treshold .*Known") as raised:
        check_profile(FAMILY, model("demo", default={"treshold": 0.5}).profile)
    assert raised.value.failure == "CONFIG"


def test_a_profile_written_for_another_server_keeps_working_and_says_what_is_ignored() -> None:
    profile = Profile(
        "default", adapter_path="pkg.mod:Class", loadtime={"flavour": 1}, runtime={"spice": 2, "normalize": True}
    )
    assert check_profile(FAMILY, profile) == ("loadtime.flavour", "runtime.spice")


def test_a_misspelt_option_of_a_config_for_no_adapter_is_refused_with_the_file_and_the_line() -> None:
    text = "sie_id: org/m\nhf_id: org/m\nprofiles:\n  default:\n    adapter_options:\n      runtime: {}\n"
    config = config_of(text.replace("{}", "{treshold: 0.5}").encode(), source="/models/m.yaml", folder=None)
    profile = config.profiles["default"]
    with pytest.raises(ModelLoadError, match=r"^m.yaml: Profile 'default': runtime\.treshold .*Did you mean threshold"):
        check_profile(FAMILY, profile, config=config)
    lined = config_of(text.replace("{}", "\n        treshold: 0.5").encode(), source="/models/m.yaml", folder=None)
    with pytest.raises(ModelLoadError, match=r"^m.yaml, line 7: Profile"):
        check_profile(FAMILY, lined.profiles["default"], config=lined)
    assert check_profile(FAMILY, Profile("default", runtime={"spice": 1})) == ("runtime.spice",)


@pytest.mark.parametrize(
    ("part", "written", "quoted"),
    [
        ("loadtime", "pooling: no", True),
        ("loadtime", "pooling: on", True),
        ("loadtime", "pooling: 2024-01-13", True),
        ("loadtime", "mode: yes", True),
        ("runtime", "instruction: no", True),
        ("runtime", "lora: 1", True),
        ("runtime", "threshold: yes", False),
        ("runtime", "dimensions: yes", False),
        ("runtime", "pooling: 'no'", False),
    ],
)
def test_a_text_that_yaml_reads_as_something_else_is_said_to_want_quotes(part: str, written: str, quoted: bool) -> None:
    profile = Profile("default", **{part: load_yaml(written.encode())})
    with pytest.raises(ModelLoadError) as raised:
        check_profile(FAMILY, profile)
    assert ("in quotes" in str(raised.value)) == quoted


@pytest.mark.parametrize(
    "runtime", [{"threshold": 7}, {"pooling": "none"}, {"output_types": "dense"}, {"overflow_policy": 1}]
)
def test_a_wrong_value_of_a_profile_is_a_config_error_whoever_it_was_written_for(runtime: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadError, match=next(iter(runtime))) as raised:
        check_profile(FAMILY, model(default=runtime).profile)
    assert raised.value.failure == "CONFIG"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["threshold", "window", "mode", "normalize", "pooling", "is_query", "output_types", "overflow_policy", "profile"]
)


@given(st.dictionaries(names | st.text(max_size=12), json_values, max_size=4))
def test_whatever_a_client_sends_is_resolved_or_refused_as_invalid_input(options: dict[str, Any]) -> None:
    refused: InvalidInput | None = None
    family: set[str] = set()
    try:
        family = set(resolve_options(FAMILY, model(), options).family)
    except InvalidInput as error:
        refused = error
    assert family <= {"threshold", "window", "mode", "normalize"}
    assert refused is None or str(refused.param).startswith("options.")
