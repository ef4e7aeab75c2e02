"""Which ids are well formed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.catalog.configs.ids import LONGEST_ID, is_model_id, is_profile_name


@pytest.mark.parametrize(
    "value",
    [
        "BAAI/bge-m3",
        "sentence-transformers/all-MiniLM-L6-v2",
        "a",
        "org/name:profile",
        "name@v1.2",
        "0/1",
        "x" * LONGEST_ID,
    ],
)
def test_ids_that_people_use_are_well_formed(value: str) -> None:
    assert is_model_id(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "../etc/passwd",
        "a/../b",
        "a..b",
        "a\\b",
        "/abs",
        ".hidden",
        "-x",
        "a b",
        "a\n",
        "é",
        "a\0",
        "a%2e%2e",
        "x" * (LONGEST_ID + 1),
    ],
)
def test_ids_that_could_leave_a_folder_or_break_a_line_are_not(value: str) -> None:
    assert not is_model_id(value)


@given(st.text(max_size=40))
def test_a_well_formed_id_always_stays_below_the_folder_it_is_joined_to(value: str) -> None:
    if is_model_id(value):
        assert re.fullmatch(r"^[a-zA-Z0-9][a-zA-Z0-9._/:@-]*$", value)
        joined = (Path("/srv/of/models") / value).resolve()
        assert joined.is_relative_to("/srv/of/models")
        assert "\\" not in value
        assert "\n" not in value


@given(st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._/:@-]{0,60}", fullmatch=True))
def test_every_id_of_the_published_shape_without_dots_in_a_row_is_well_formed(value: str) -> None:
    assert is_model_id(value) == (".." not in value)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))
def test_a_profile_name_never_holds_the_separator(value: str) -> None:
    assert is_profile_name(value)
    assert not is_profile_name(f"{value}:x")
    assert not is_profile_name(f"{value}\n")
