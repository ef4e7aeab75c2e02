"""Model config files: what loads, what `extends` does, and what an error names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sie_core.catalog import ConfigError, parse_config, read_config
from sie_core.catalog.configs.reading import LARGEST_CONFIG

FULL = """
sie_id: acme/tiny
hf_id: acme/tiny-weights
hf_revision: 0123456789abcdef0123456789abcdef01234567
hf_tokenizer_dependencies: {acme/tokenizer: main}
routing: {policy: fallback, fallback_profile: default, triggers: [provisioning], window_s: 10}
pool: GPU_pool
inputs: {text: true, image: true}
tasks:
  encode: {dense: {dim: 8}, sparse: null, multivector: {dim: 4}}
  score: {}
  extract: null
max_sequence_length: 512
profiles:
  default:
    adapter_path: "other_server.adapters.bert:BertAdapter"
    max_batch_tokens: 16384
    compute_precision: bfloat16
    adapter_options:
      loadtime: {pooling: mean}
      runtime: {normalize: true, query_template: "query: {text}"}
    adaptive_batching: {enabled: true, target_p50_ms: 50, gain: 0.1}
    kv_budget_tokens: 100
    chat_template_kwargs: {thinking: false}
  fast:
    extends: default
    max_batch_tokens: 8192
    adapter_options:
      runtime: {output_types: [dense], output_dtype: float16}
"""


def test_a_config_with_every_field_of_existing_folders_loads(write_config: Callable[..., Path]) -> None:
    config = read_config(write_config("tiny", FULL))
    assert (config.id, config.hf_id) == ("acme/tiny", "acme/tiny-weights")
    assert config.hf_revision == "0123456789abcdef0123456789abcdef01234567"
    assert config.inputs == ("text", "image")
    assert config.tasks == {"encode": {"dense": {"dim": 8}, "multivector": {"dim": 4}}, "score": {}}
    assert config.max_sequence_length == 512
    assert not config.accept_token_ids
    assert not config.trust_remote_code
    assert config.source.endswith("tiny.yaml")
    default = config.profiles["default"]
    assert default.adapter_path == "other_server.adapters.bert:BertAdapter"
    assert (default.max_batch_cost, default.compute_precision) == (16384, "bfloat16")
    assert default.loadtime == {"pooling": "mean"}


def test_a_pool_is_in_lower_case_and_the_default_one_where_none_is_named(write_config: Callable[..., Path]) -> None:
    assert read_config(write_config("tiny", FULL)).pool == "gpu_pool"
    assert read_config(write_config("bare", "{sie_id: bare, hf_id: bare}")).pool == "default"


def test_a_config_carries_its_text_and_configs_that_differ_in_comments_are_equal(
    write_config: Callable[..., Path],
) -> None:
    plain = read_config(write_config("tiny", FULL))
    commented = read_config(write_config("tiny", f"# für die Suche\n{FULL}"))
    assert (plain.text, commented.text) == (FULL, f"# für die Suche\n{FULL}")
    assert plain == commented


@pytest.mark.timeout(20)
def test_aliases_that_expand_to_billions_are_refused_and_a_shared_map_is_not(
    write_config: Callable[..., Path],
) -> None:
    tenfold = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
    bomb = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *tenfold])
    with pytest.raises(ConfigError, match=r"bomb\.yaml: its aliases expand to more than 100000 values"):
        read_config(write_config("bomb", bomb))
    shared = (
        "profiles: {default: {adapter_options: {runtime: &o {normalize: true}}}, b: {adapter_options: {runtime: *o}}}"
    )
    config = read_config(write_config("shared", f"sie_id: a\nhf_id: a\n{shared}"))
    assert config.profiles["b"].runtime == {"normalize": True}


def test_a_filled_map_of_the_child_replaces_the_parents_whole_map_and_an_empty_one_does_not(
    write_config: Callable[..., Path],
) -> None:
    fast = read_config(write_config("tiny", FULL)).profiles["fast"]
    assert fast.runtime == {"output_types": ["dense"], "output_dtype": "float16"}
    assert fast.loadtime == {"pooling": "mean"}
    assert (fast.max_batch_cost, fast.compute_precision) == (8192, "bfloat16")
    assert fast.output_types == ("dense",)


def test_our_own_names_and_opt_ins_load(write_config: Callable[..., Path]) -> None:
    config = read_config(
        write_config(
            "own",
            "{model_id: own, hf_id: org/own, accept_token_ids: true, trust_remote_code: true, "
            "tasks: {encode: {dense: {matryoshka_dims: [64, 128]}}}}",
        )
    )
    assert config.id == "own"
    assert config.accept_token_ids
    assert config.trust_remote_code
    assert config.tasks == {"encode": {"dense": {"matryoshka_dims": [64, 128]}}}
    assert list(config.profiles) == ["default"]
    assert config.profiles["default"].adapter_path is None


def test_a_weights_path_is_relative_to_its_file(write_config: Callable[..., Path], tmp_path: Path) -> None:
    config = read_config(write_config("local", "{sie_id: local, weights_path: ./weights/local}"))
    assert config.weights_path is not None
    assert Path(config.weights_path).resolve() == (tmp_path / "models/weights/local").resolve()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{sie_id: a, hf_id: a, adaptor: x}", ["adaptor", "is no field", "hf_id", "sie_id", "model_id"]),
        ("{sie_id: a, hf_id: a, profile: {}}", ["`profile`", "Did you mean profiles"]),
        ("{sie_id: a, hf_id: a, max_sequence_length: long}", ["max_sequence_length", "'long'", "integer"]),
        ("{sie_id: a, hf_id: a, max_sequence_length: '512'}", ["max_sequence_length", "'512'", "integer"]),
        ("{sie_id: a, hf_id: a, inputs: {text: 1}}", ["inputs.text", "1", "boolean"]),
        ("{sie_id: a}", ["hf_id", "weights_path", "package_backed"]),
        ("{hf_id: a}", ["sie_id", "needed"]),
        ("{sie_id: ../a, hf_id: a}", ["../a", "no '..'"]),
        ("{sie_id: a, hf_id: a/../../b}", ["hf_id", "a/../../b"]),
        ("{sie_id: a, hf_id: a, hf_revision: ../../etc}", ["hf_revision", "../../etc"]),
        ("{sie_id: a, hf_id: a, profiles: {}}", ["profiles", "at least 1"]),
        ("{sie_id: a, hf_id: a, profiles: {'x y': {}}}", ["x y", "letters, digits"]),
        ("{sie_id: a, hf_id: a, profiles: {b: {extends: c}}}", ["profiles.b.extends", "'c'", "the profiles are b"]),
        (
            "{sie_id: a, hf_id: a, profiles: {a: {}, b: {extends: a}, c: {extends: b}}}",
            ["profiles.c.extends", "'b'", "one level"],
        ),
        ("{sie_id: a, hf_id: a, profiles: {a: {extends: a}}}", ["profiles.a.extends", "one level"]),
        (
            "{sie_id: a, hf_id: a, profiles: {default: {compute_precision: int4}}}",
            ["profiles.default.compute_precision", "'int4'", "float16", "bfloat16", "float32"],
        ),
        (
            "{sie_id: a, hf_id: a, profiles: {default: {adapter_options: {runtime: {output_types: [dence]}}}}}",
            ["profiles.default", "dence", "multivector"],
        ),
        ("{sie_id: a, hf_id: a, pickles: {a.pt: {size: 9}}}", ["pickles.a.pt.sha256", "needed"]),
        ("{sie_id: a, hf_id: a, pickles: {a.pt: {size: 9, sha256: abc}}}", ["pickles.a.pt.sha256", "'abc'"]),
        ("{sie_id: a, hf_id: a, pickles: {../a.pt: {size: 9, sha256: abc}}}", ["pickles.../a.pt"]),
        ("{sie_id: a, hf_id: a, pickles: {'*.pt': {size: 9, sha256: abc}}}", ["pickles.*.pt"]),
        ("{sie_id: a, hf_id: a, license: no}", ["license", "False", "put the word that is meant in quotes"]),
        ("{sie_id: a, hf_id: a, hf_revision: 20240113}", ["hf_revision", "20240113", "a number or a date in quotes"]),
        ("{sie_id: a, hf_id: a, pool: _default}", ["pool", "_default"]),
        ("{sie_id: a, hf_id: a, pool: _DEFAULT}", ["pool", "_default"]),
        ("{sie_id: a, remote_backed: true}", ["remote_backed"]),
        ("- a", ["map of fields", "list"]),
        ("sie_id: [unclosed", ["YAML", "line"]),
        ("sie_id: a\nsie_id: b\nhf_id: a", ["sie_id", "twice", "line 2"]),
        ("!!python/object/apply:os.system ['true']", ["YAML"]),
        ("sie_id: 2024-13-45", ["cannot be read", "a date"]),
        ("sie_id: !!timestamp now", ["cannot be read", "tagged value"]),
        ("sie_id: " + "9" * 5000, ["line 1", "a number has 5000 characters"]),
        ("[" * 5000, ["nests too deep"]),
        ("&a [*a]", ["an alias stands for a value that holds it"]),
        (
            "{sie_id: a, hf_id: a, profiles: {default: {adapter_options: {runtime: {since: 2024-01-01}}}}}",
            ["profiles.default.adapter_options.runtime.since", "datetime.date(2024, 1, 1)", "JSON"],
        ),
        (
            "{sie_id: a, hf_id: a, profiles: {default: {adapter_options: {loadtime: {scale: [{a: .inf}]}}}}}",
            ["profiles.default.adapter_options.loadtime.scale", "inf", "finite number"],
        ),
        ("", ["map of fields"]),
    ],
)
def test_a_wrong_config_names_file_field_value_and_what_is_allowed(
    write_config: Callable[..., Path], text: str, said: list[str]
) -> None:
    file = write_config("wrong", text)
    with pytest.raises(ConfigError) as raised:
        read_config(file)
    message = str(raised.value)
    for part in [str(file), *said]:
        assert part in message


FACTS = """
sie_id: acme/tiny
hf_id: acme/tiny
license: mit
weights:
  model_type: bert
  architectures: [BertModel]
  modules:
    - sentence_transformers.models.Transformer
    - sentence_transformers.models.Pooling: { pooling_mode: cls }
  files: [tokenizer.json]
tasks: { encode: { dense: {} }, score: {} }
profiles: { default: { adapter_options: { runtime: { query_template: "q: {text}" } } } }
sources:
  license: https://example.org/tiny
  weights.modules: https://example.org/tiny/modules.json
  tasks.score: https://example.org/tiny
  profiles.default.adapter_options.runtime.query_template: https://example.org/tiny
"""


def test_what_a_config_knows_of_the_weights_files_becomes_the_card_to_expect(
    write_config: Callable[..., Path],
) -> None:
    config = read_config(write_config("tiny", FACTS))
    assert config.license == "mit"
    assert config.expected is not None
    assert (config.expected.model_type, config.expected.architectures) == ("bert", ("BertModel",))
    assert [(module.kind, module.config) for module in config.expected.modules] == [
        ("Transformer", {}),
        ("Pooling", {"pooling_mode": "cls"}),
    ]
    assert config.expected.files == ("tokenizer.json",)
    assert read_config(write_config("bare", "{sie_id: bare, hf_id: bare}")).expected is None


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ("{licence: https://example.org}", ["sources.licence", "states no `licence`"]),
        ("{tasks.encode.sparse: https://example.org}", ["sources.tasks.encode.sparse"]),
        ("{weights.files.0: https://example.org}", ["sources.weights.files.0"]),
        ("{license: example.org}", ["sources.license", "example.org", "https"]),
        ("{license: http://example.org}", ["sources.license", "http://example.org"]),
    ],
)
def test_a_source_is_a_page_for_a_fact_that_is_there(
    write_config: Callable[..., Path], sources: str, said: list[str]
) -> None:
    text = FACTS.partition("sources:")[0] + f"sources: {sources}"
    with pytest.raises(ConfigError) as raised:
        read_config(write_config("wrong", text))
    assert all(part in str(raised.value) for part in said)


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def pipe(file: Path) -> None:
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.mkdir()


def huge(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(50 * 2**20)


def a_byte_too_large(file: Path) -> None:
    file.write_bytes(b"#" * (LARGEST_CONFIG + 1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (device, "no regular file"),
        (pipe, "no regular file"),
        (folder, "no regular file"),
        (huge, f"52428800 bytes are more than the {LARGEST_CONFIG} allowed"),
        (a_byte_too_large, f"{LARGEST_CONFIG + 1} bytes are more than the {LARGEST_CONFIG} allowed"),
    ],
)
@pytest.mark.timeout(20)
def test_what_is_no_file_or_too_large_is_refused_unread(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "wrong.yaml")
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        read_config(tmp_path / "wrong.yaml")
    assert said in str(raised.value)


def test_a_config_of_the_largest_size_is_read(tmp_path: Path) -> None:
    text = b"{sie_id: a, hf_id: a} #"
    (tmp_path / "a.yaml").write_bytes(text + b"x" * (LARGEST_CONFIG - len(text)))
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    assert read_config(tmp_path / "link.yaml").id == "a"


def test_every_wrong_field_is_named_at_once(write_config: Callable[..., Path]) -> None:
    file = write_config("wrong", "{sie_id: 5, hf_id: a, max_sequence_length: 0}")
    with pytest.raises(ConfigError) as raised:
        read_config(file)
    assert len(str(raised.value).splitlines()) == 2


def test_a_file_that_is_no_text_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ConfigError, match=r"binary\.yaml"):
        read_config(tmp_path / "binary.yaml")


options = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(), max_size=3)
profile = st.fixed_dictionaries(
    {},
    optional={
        "adapter_path": st.sampled_from(["x", "y"]),
        "max_batch_tokens": st.integers(1, 99),
        "compute_precision": st.sampled_from(["float16", "float32"]),
        "adapter_options": st.fixed_dictionaries({}, optional={"loadtime": options, "runtime": options}),
    },
)


@given(parent=profile, child=profile)
def test_extends_takes_each_field_from_the_child_where_it_says_something(
    parent: dict[str, Any], child: dict[str, Any]
) -> None:
    data = {"sie_id": "m", "hf_id": "m", "profiles": {"default": parent, "child": {**child, "extends": "default"}}}
    config = parse_config(yaml.safe_load(yaml.safe_dump(data)), source="test", folder=Path())
    merged = config.profiles["child"]
    assert merged.adapter_path == child.get("adapter_path", parent.get("adapter_path"))
    assert merged.max_batch_cost == child.get("max_batch_tokens", parent.get("max_batch_tokens"))
    assert merged.compute_precision == child.get("compute_precision", parent.get("compute_precision"))
    for part, value in (("loadtime", merged.loadtime), ("runtime", merged.runtime)):
        own = child.get("adapter_options", {}).get(part)
        assert value == (own or parent.get("adapter_options", {}).get(part) or {})
