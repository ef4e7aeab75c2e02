"""A reference written outside the tree: installed by pip, `sie verify` holds a family against it."""

from __future__ import annotations

import json

import pytest

LISTS = {"SIE_PLUGINS": "letters,letter-counts,fake", "SIE_DEVICE": "cpu", "SIE_HF_FALLBACK": "false"}


@pytest.fixture(scope="module")
def site(install):
    return install("outside_family", "outside_reference")


def test_a_family_that_equals_it_is_verified(sie, site):
    done = sie("verify", "outside/letters", site=site, **LISTS)
    assert done.returncode == 0, done.stderr
    assert "outside/letters: letters on cpu in float32" in done.stdout
    assert "counting" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("verified: the largest deviation is ")


def test_one_that_differs_from_it_is_not(sie, site):
    done = sie("verify", "outside/letters", "--json", site=site, SIE_LETTERS_WRONG_BY="0.5", **LISTS)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["verdict"] == "differs"
    asked = [(row["output"], row["asked"], row["passed"]) for row in report["rows"]]
    assert ("dense", "as query", False) in asked
    assert ("score", "query and document, by dense", False) in asked


def test_one_that_raises_is_named_and_verifies_nothing(sie, site):
    done = sie("verify", "outside/letters", site=site, LETTERS_RAISES="1", **LISTS)
    assert done.returncode == 1
    assert "counting failed to answer (KeyError: 'letters')" in done.stdout
    assert done.stdout.splitlines()[-1] == "not verified"


def test_one_whose_library_is_missing_says_how_to_get_it(sie, site):
    done = sie("verify", "sie-fake/dense", site=site, **LISTS)
    assert done.returncode == 1
    assert "absent is not installed: pip install 'sie-test-absent>=2'" in done.stdout
    assert done.stdout.splitlines()[-1] == "not verified"


def test_a_family_without_one_is_said_to_have_none(sie):
    done = sie("verify", "sie-fake/reranker", SIE_PLUGINS="fake", SIE_DEVICE="cpu", SIE_HF_FALLBACK="false")
    assert done.returncode == 1
    assert "no plugin registers a reference for score of the family 'fake'" in done.stdout


def test_a_variable_of_its_own_with_a_value_it_does_not_know_stops_the_command(sie, site):
    done = sie("verify", "outside/letters", site=site, SIE_LETTERS_WRONG_BY="2", **LISTS)
    assert done.returncode == 2
    assert "SIE_LETTERS_WRONG_BY='2' is none of 0, 0.5. What is added to every count of a letter." in done.stderr


def test_it_is_listed_with_its_plugin(sie, site):
    listed = sie("plugins", site=site, **LISTS).stdout
    assert "    references: counting, absent" in listed
    assert "    settings: SIE_LETTERS_WRONG_BY" in listed
