"""Which token may do what."""

from __future__ import annotations

import itertools

import pytest
from pydantic import SecretStr
from sie_cluster.config_service.api.tokens import Right, Tokens
from sie_cluster.settings import ClusterSettings
from starlette.datastructures import Headers

from sie_core.auth import TokenSource
from sie_core.contracts import InferenceError

SET = {"admin_token": "the-admin", "config_read_token": "the-follower", "auth_token": "the-client"}
MAY = {
    "read": {"the-admin", "the-follower", "the-client"},
    "export": {"the-admin", "the-follower"},
    "write": {"the-admin"},
}


def tokens(*names: str, **others: str) -> Tokens:
    return Tokens.of(ClusterSettings(**{name: SecretStr(SET[name]) for name in names}, **others))


def asked(of: Tokens, right: Right, *values: str) -> str | None:
    """The code of the refusal; None where the right is given."""
    try:
        of.check(Headers(raw=[(b"authorization", value.encode("latin-1")) for value in values]), right)
    except InferenceError as error:
        return error.code
    return None


def test_no_refusal_holds_a_token() -> None:
    for right, token in itertools.product(MAY, SET.values()):
        for of in (tokens("admin_token"), tokens("config_read_token")):
            with pytest.raises(InferenceError) as raised:
                of.check(Headers({"authorization": f"x{token}"}), right)
            assert token not in raised.value.message


@pytest.mark.parametrize("right", ["read", "export", "write"])
def test_each_token_has_its_rights_and_no_others(right: Right) -> None:
    of = tokens(*SET)
    for token in (*SET.values(), "the-other", "the-admi", "the-adminn", "THE-ADMIN", "thé-admin"):
        expected = None if token in MAY[right] else "FORBIDDEN"
        assert asked(of, right, f"Bearer {token}") == expected
    for header in ((), ("",), ("Bearer",), ("Bearer  ",), ("bearer\t",)):
        assert asked(of, right, *header) == "UNAUTHORIZED"


@pytest.mark.parametrize("prefix", ["Bearer ", "bearer ", "BEARER ", "bEaReR   ", "", " ", "Bearer\t"])
def test_the_prefix_may_be_written_in_any_case_or_left_out(prefix: str) -> None:
    assert asked(tokens(*SET), "write", f"{prefix}the-admin ") is None


def test_a_token_may_itself_begin_like_the_prefix() -> None:
    of = Tokens(TokenSource(("bearer-of-news",)), production=False)
    assert asked(of, "write", "bearer-of-news") is asked(of, "write", "Bearer bearer-of-news") is None


def test_of_two_headers_none_counts() -> None:
    assert asked(tokens(*SET), "write", "Bearer the-admin", "Bearer the-admin") == "FORBIDDEN"


def test_without_any_token_everybody_may_do_everything() -> None:
    assert tokens().open
    assert all(asked(tokens(), right, *header) is None for right, header in itertools.product(MAY, [(), ("Bearer x",)]))


@pytest.mark.parametrize("variable", ["deployment_env", "env"])
@pytest.mark.parametrize("value", ["prod", "Production"])
def test_in_production_nobody_may_do_anything_without_tokens(variable: str, value: str) -> None:
    of = tokens(**{variable: value})
    assert not of.open
    assert [asked(of, right, "Bearer x") for right in MAY] == ["FORBIDDEN"] * 3
    assert asked(tokens("admin_token", **{variable: value}), "write", "Bearer the-admin") is None
    assert asked(tokens(**{variable: "staging"}), "write") is None


@pytest.mark.parametrize("names", [("config_read_token",), ("auth_token",), ("config_read_token", "auth_token")])
def test_where_only_tokens_that_read_are_set_nobody_may_write(names: tuple[str, ...]) -> None:
    of = tokens(*names)
    for header in ((), *((f"Bearer {SET[name]}",) for name in SET)):
        assert asked(of, "write", *header) == "FORBIDDEN"
    assert asked(of, "read", f"Bearer {SET[names[0]]}") is None


def test_where_only_the_admin_s_is_set_it_is_needed_for_reads_too() -> None:
    of = tokens("admin_token")
    assert [asked(of, right) for right in MAY] == ["UNAUTHORIZED"] * 3
    assert [asked(of, right, "the-admin") for right in MAY] == [None] * 3
