"""YAML of others: bounds, and the same values with libyaml and without."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sie_core.catalog.configs import yaml_text
from sie_core.catalog.configs.yaml_text import MOST_LEVELS, YamlFault, load_yaml

# PyYAML without libyaml writes U+0085, a line end of YAML 1.1, so that it is read as a blank.
TEXTS = st.text(st.characters(exclude_characters="\x85", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False) | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_what_is_written_is_read_and_the_same_without_libyaml(value: object, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert load_yaml(text.encode()) == value
    assert yaml_text._value(yaml_text._Loader(text)) == value


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "-\t"])
@pytest.mark.parametrize("depth", [MOST_LEVELS + 1, 900, 1_050])
def test_what_nests_too_deep_is_refused(opening: str, depth: int) -> None:
    with pytest.raises(YamlFault, match=r"nests too deep|not valid YAML"):
        load_yaml((opening * depth + "x").encode())
    with pytest.raises(YamlFault, match="nests too deep"):
        load_yaml(b"[" * depth + b"x" + b"]" * depth)


def test_what_nests_as_deep_as_allowed_is_read() -> None:
    value = load_yaml(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS)
    for _ in range(MOST_LEVELS - 1):
        assert isinstance(value, list)
        (value,) = value
    assert value == []


def test_aliases_of_a_long_text_are_refused_and_a_few_are_not() -> None:
    long = b"a: &a " + b"x" * 500_000 + b"\nb: [" + b"*a," * 1000 + b"]"
    with pytest.raises(YamlFault, match="characters: write fewer aliases"):
        load_yaml(long)
    assert load_yaml(b"a: &a xx\nb: [*a, *a]") == {"a": "xx", "b": ["xx", "xx"]}


@pytest.mark.parametrize("end", ["", ".5"])
@pytest.mark.parametrize("tagged", ["", "!!float "])
@pytest.mark.parametrize("parts", [60, 400_000])
def test_a_number_in_sixties_of_many_parts_is_refused_before_it_is_multiplied_out(
    parts: int, tagged: str, end: str
) -> None:
    with pytest.raises(YamlFault, match="characters; 100 are allowed"):
        load_yaml(f"a: {tagged}1{':1' * parts}{end}".encode())
    assert load_yaml(b"a: 1:30\nb: 1.5e+3\nc: 0x10") == {"a": 90, "b": 1500.0, "c": 16}
