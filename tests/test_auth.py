"""Tokens: which are accepted, where none is asked for, and that comparing them tells nothing of them."""

from __future__ import annotations

import hmac
import random
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from sie_cluster.programs.probes import probes
from sie_cluster.settings import ClusterSettings
from starlette.testclient import TestClient

from sie_core.auth import LOOK_S, Auth, TokenSet, TokenSource, given_tokens
from sie_core.contracts import InferenceError
from sie_core.settings import Settings, SettingsError, load_settings

ON = {"auth_mode": "token", "auth_token": SecretStr("one"), "auth_tokens": (SecretStr("two"), SecretStr("three"))}
BEARER = "Bearer "


def refusal(auth: Auth, path: str, *values: str) -> str | None:
    """The code of the refusal; None where the request is answered."""
    try:
        auth.check(path, values)
    except InferenceError as error:
        return error.code
    return None


def admin_refusal(auth: Auth, *values: str) -> str | None:
    try:
        auth.check_admin(values)
    except InferenceError as error:
        return error.code
    return None


@pytest.mark.parametrize("mode", ["token", "static"])
def test_each_of_several_tokens_is_accepted_and_no_other(mode: str) -> None:
    auth = Auth.of(Settings(**{**ON, "auth_mode": mode}))
    for token in ("one", "two", "three"):
        assert refusal(auth, "/v1/models", BEARER + token) is None
        assert refusal(auth, "/v1/models", f"bearer {token} ") is None
        assert refusal(auth, "/v1/models", token) is None
    for wrong in ("onee", "on", "ONE", "one,two", "one two", "four", "öne", "*"):
        assert refusal(auth, "/v1/models", BEARER + wrong) == "UNAUTHORIZED"
    assert refusal(auth, "/v1/models", BEARER + "one", BEARER + "one") == "UNAUTHORIZED"
    for header in ((), ("",), ("Bearer",), ("Bearer  ",)):
        assert refusal(auth, "/v1/models", *header) == "UNAUTHORIZED"


def test_probes_are_always_open_and_operational_paths_where_a_setting_says_so() -> None:
    closed, exempt = Auth.of(Settings(**ON)), Auth.of(Settings(**ON, auth_exempt_operational=True))
    for path in ("/healthz", "/livez", "/readyz", "/ping"):
        assert refusal(closed, path) is refusal(exempt, path) is None
    for path in ("/health", "/metrics", "/ws/status", "/ws/cluster-status", "/tei/org/model/health"):
        assert (refusal(closed, path), refusal(exempt, path)) == ("UNAUTHORIZED", None)
    for path in (
        "/healthzz",
        "/health/",
        "/tei/health",  # a model of that name
        "/tei//health",
        "/tei/org/model/health/",
        "/metrics/x",
        "/ws",
        "/v1/models",
        "/",
        "/docs",
        "/openapi.json",
        "//healthz",
    ):
        assert refusal(closed, path) == refusal(exempt, path) == "UNAUTHORIZED"


def test_pools_are_changed_by_the_administrator_alone_where_clients_need_tokens() -> None:
    assert admin_refusal(Auth.of(Settings(), [TokenSource(("admin",))])) is None
    without, with_admin = Auth.of(Settings(**ON)), Auth.of(Settings(**ON), [TokenSource(("admin",))])
    assert admin_refusal(without, BEARER + "one") == "FORBIDDEN"
    assert [admin_refusal(with_admin, BEARER + token) for token in ("one", "admin")] == ["FORBIDDEN", None]
    assert refusal(with_admin, "/v1/models", BEARER + "admin") is None


def test_settings_that_lock_everybody_out_or_mean_nothing_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"SIE_AUTH_MODE=token .* SIE_AUTH_TOKEN"):
        Auth.of(Settings(auth_mode="token"))
    for name, value, wanted in (
        ("SIE_AUTH_MODE", "password", "'none', 'token' or 'static'"),
        ("SIE_AUTH_TOKENS", "hush,hu sh", "printable ASCII"),
        ("SIE_AUTH_EXEMPT_OPERATIONAL", "perhaps", "bool"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(SettingsError, match=wanted) as raised:
                load_settings(Settings)
            assert name in str(raised.value)
            assert "hu sh" not in str(raised.value)


def test_tokens_are_read_from_the_environment_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_AUTH_MODE", "token")
    monkeypatch.setenv("SIE_AUTH_TOKENS", " hush-1 , hush-2,")
    settings = load_settings(Settings)
    assert "hush" not in repr(settings)
    auth = Auth.of(settings)
    assert [refusal(auth, "/v1/models", BEARER + f"hush-{number}") for number in (1, 2, 3)] == [
        None,
        None,
        "UNAUTHORIZED",
    ]


def test_comparing_reads_the_same_bytes_whatever_is_given() -> None:
    """Each token in force is compared, in full, by a hash: neither which matches nor how much of it changes that."""
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return hmac.compare_digest(left, right)

    tokens = [f"token-{number:032}" for number in range(5)]
    held, seeds = TokenSet(tokens, compare), random.Random(7)
    for given in (*tokens, "", "t", tokens[0][:-1], tokens[4] + "0", "x" * 10_000, *(seeds.randbytes(9).hex(),) * 20):
        compared.clear()
        assert held.holds(given) == (given in tokens)
        assert compared == [(32, 32)] * len(tokens)


def test_tokens_that_differ_in_one_bit_have_hashes_that_differ_in_about_half_of_theirs() -> None:
    """So how many bytes of a hash are equal, the most that comparing could tell, says nothing of the token."""
    seen: list[bytes] = []

    def compare(left: bytes, right: bytes) -> bool:
        seen.append(bytes(a ^ b for a, b in zip(left, right, strict=True)))
        return False

    token = "a-token-of-some-length-that-is-secret"
    for place in range(len(token)):
        TokenSet([token], compare).holds(token[:place] + chr(ord(token[place]) ^ 1) + token[place + 1 :])
    differing = [sum(byte.bit_count() for byte in each) for each in seen]
    assert all(80 <= bits <= 176 for bits in differing)  # 128 ± 6 standard deviations


def test_a_header_without_a_token_gives_an_empty_one() -> None:
    assert given_tokens(["Bearer", "bearer x", " x ", "", "BearerX"]) == ["", "x", "x", "", "BearerX"]


def test_metrics_of_programs_without_inference_need_a_token_and_their_probes_none() -> None:
    auth = Auth.of(Settings(**ON))
    with TestClient(probes(lambda: None, lambda: None, CollectorRegistry(), auth)) as client:
        assert [client.get(path).status_code for path in ("/healthz", "/livez", "/readyz")] == [200] * 3
        refused = client.get("/metrics")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/metrics", headers={"Authorization": "Bearer two"}).status_code == 200


def test_tokens_of_a_file_are_known_within_a_second_of_its_change_and_stay_where_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, now = tmp_path / "tokens", [0.0]
    file.write_text("first\nsecond\n")
    monkeypatch.setenv("SIE_AUTH_MODE", "token")
    monkeypatch.setenv("SIE_AUTH_TOKENS_FILE", str(file))
    settings = load_settings()
    assert [each.get_secret_value() for each in settings.auth_tokens] == ["first", "second"]
    held = TokenSet([TokenSource.of(settings, "auth_tokens")], clock=lambda: now[0])
    assert [held.holds(each) for each in ("first", "second", "third")] == [True, True, False]
    fresh = tmp_path / "fresh"
    fresh.write_text("third")
    fresh.replace(file)
    assert held.holds("first")
    now[0] += LOOK_S
    assert [held.holds(each) for each in ("first", "second", "third")] == [False, False, True]
    file.unlink()
    now[0] += LOOK_S
    assert held.holds("third")
    assert "the tokens that it held before stay in force" in caplog.text


def test_a_changed_file_changes_who_may_call_and_who_may_change_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    monkeypatch.setenv("SIE_AUTH_TOKEN_FILE", str(file))
    settings = load_settings(auth_mode="token")
    source = TokenSource.of(settings, "auth_token")
    auth = Auth.of(settings, [source])
    monkeypatch.setattr("sie_core.auth.LOOK_S", 0.0)
    assert admin_refusal(auth, BEARER + "old") is None
    file.write_text("renewed")
    assert refusal(auth, "/v1/models", BEARER + "old") == "UNAUTHORIZED"
    assert refusal(auth, "/v1/models", BEARER + "renewed") is None
    assert admin_refusal(auth, BEARER + "renewed") is None


def test_one_secret_stays_one_whatever_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("ab,cd\n")
    monkeypatch.setenv("SIE_AUTH_TOKEN_FILE", str(file))
    monkeypatch.setenv("SIE_NATS_PASSWORD_FILE", str(file))
    settings, now = load_settings(ClusterSettings), [0.0]
    assert settings.nats_password == SecretStr("ab,cd")
    held = TokenSet([TokenSource.of(settings, "auth_token")], clock=lambda: now[0])
    for _ in range(2):
        assert [held.holds(each) for each in ("ab,cd", "ab")] == [True, False]
        file.touch()
        now[0] += LOOK_S
    file.write_text("pass word\n")
    assert load_settings(ClusterSettings, auth_token="x").nats_password == SecretStr("pass word")


def test_a_file_that_changes_before_the_first_look_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    monkeypatch.setenv("SIE_AUTH_TOKEN_FILE", str(file))
    settings = load_settings()
    file.write_text("new")
    held = TokenSet([TokenSource.of(settings, "auth_token")])
    assert [held.holds(each) for each in ("new", "old")] == [True, False]


def test_a_secret_of_two_sources_of_a_missing_file_or_of_an_empty_one_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("SIE_AUTH_TOKEN_FILE", str(file))
    with pytest.raises(SettingsError, match=r"^SIE_AUTH_TOKEN_FILE: the secret of .*token cannot be read"):
        load_settings()
    file.write_text(" \n")
    with pytest.raises(SettingsError, match=r"^SIE_AUTH_TOKEN_FILE: .* is empty, and is to hold a secret"):
        load_settings()
    file.write_text("tökén")
    with pytest.raises(SettingsError, match=r"SIE_AUTH_TOKEN_FILE=\(a secret\): a token is printable ASCII"):
        load_settings()
    file.write_text("old\nnew\n")
    with pytest.raises(SettingsError, match="has 2 lines, and is to hold one secret"):
        load_settings()
    monkeypatch.setenv("SIE_AUTH_TOKEN", "other")
    with pytest.raises(SettingsError, match=r"SIE_AUTH_TOKEN and SIE_AUTH_TOKEN_FILE=.* are both set; unset one"):
        load_settings()
