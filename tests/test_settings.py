"""Settings: argument over environment over default, and what a wrong or foreign variable gets."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from sie_cluster.settings import ClusterSettings as Settings

from sie_core import settings as module
from sie_core.contracts import PluginSetting
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import SettingsError, variable, variables_of

load_settings = partial(module.load_settings, Settings)
describe_settings = partial(module.describe_settings, model=Settings)
unknown_variables = partial(module.unknown_variables, models=[Settings])
GROUPS = ("basic", "advanced", "cluster", "config service")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SIE_"):
            monkeypatch.delenv(name)


def test_an_argument_wins_over_the_environment_which_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().http_port == 8080
    monkeypatch.setenv("SIE_HTTP_PORT", "9000")
    assert load_settings().http_port == 9000
    assert load_settings(http_port=None).http_port == 9000
    assert load_settings(http_port=9100).http_port == 9100


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_HTTP_PORT", "")
    monkeypatch.setenv("SIE_MODEL_FILTER", "")
    settings = load_settings()
    assert (settings.http_port, settings.model_filter) == (8080, ())


def test_lists_are_separated_by_commas_and_spaces_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_MODEL_FILTER", " a/b , c,,")
    assert load_settings().model_filter == ("a/b", "c")
    assert load_settings(preload_models="x,y").preload_models == ("x", "y")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("SIE_HTTP_PORT", "70000", "65535"),
        ("SIE_HTTP_PORT", "eighty", "integer"),
        ("SIE_LOG_LEVEL", "LOUD", "WARNING"),
        ("SIE_DEVICE", "GPU 0", "cuda:0"),
        ("SIE_HF_FALLBACK", "perhaps", "boolean"),
        ("SIE_MAX_BATCH_COST", "0", "greater than or equal to 1"),
        ("SIE_ATTENTION_BACKEND", "magic wand", "sdpa"),
    ],
)
def test_a_bad_value_names_the_variable_the_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert f"{name}={value!r}" in str(raised.value)
    assert allowed in str(raised.value)


@pytest.mark.parametrize("name", ["SIE_ADMIN_TOKEN", "SIE_CONFIG_READ_TOKEN", "SIE_AUTH_TOKEN"])
@pytest.mark.parametrize("token", ["hush hush", "hush\n", "hüsh"])
def test_a_token_that_no_header_can_hold_stops_the_start_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, name: str, token: str
) -> None:
    monkeypatch.setenv(name, token)
    with pytest.raises(SettingsError, match=f"{name}=.a secret.*printable ASCII") as raised:
        load_settings()
    assert token not in str(raised.value)
    monkeypatch.setenv(name, "hush-hush")
    assert "hush" not in repr(load_settings())


def test_a_config_service_is_named_by_a_url_without_login_and_a_password_in_one_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIE_CONFIG_SERVICE_URL", "http://configs:8080/below")
    assert load_settings().config_service_url == "http://configs:8080/below"
    monkeypatch.setenv("SIE_CONFIG_SERVICE_URL", "http://admin:hush@configs:8080")
    with pytest.raises(SettingsError, match=r"SIE_CONFIG_SERVICE_URL='http://…@configs") as raised:
        load_settings()
    assert "hush" not in str(raised.value)


def test_the_store_of_the_config_service_is_a_folder_or_a_url() -> None:
    assert load_settings(config_store_dir="kept").config_store_dir == Path("kept")
    assert load_settings(config_store_dir="s3://bucket/kept").config_store_dir == "s3://bucket/kept"


def test_options_of_the_broker_are_those_that_a_transport_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_NATS_USER", "config")
    monkeypatch.setenv("SIE_NATS_CONFIG_TRUSTED_PRODUCERS", "ours")
    assert load_settings().nats_config_trusted_producers == ("ours",)
    assert load_settings().queue_options() == {"user": "config", "storage": "file", "replicas": "1"}


def test_a_bad_argument_is_named_as_the_option_it_came_from() -> None:
    with pytest.raises(SettingsError, match=r"--http-port='x'"):
        load_settings(http_port="x")


def test_every_bad_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_HTTP_PORT", "x")
    monkeypatch.setenv("SIE_DEVICE", "?")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("value", ["tcp://10.0.0.1:80", "udp://10.0.0.1:80", "tcp://[fd00::1]:80"])
def test_a_service_link_with_the_name_of_a_setting_is_ignored(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SIE_HTTP_PORT", value)
    assert load_settings().http_port == 8080
    assert unknown_variables() == []


def test_everything_kubernetes_sets_for_services_called_sie_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("SIE", "SIE_HTTP", "SIE_GATEWAY"):
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.1:80")
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "80")
        monkeypatch.setenv(f"{service}_SERVICE_PORT_METRICS", "9090")
        monkeypatch.setenv(f"{service}_PORT_80_TCP", "tcp://10.0.0.1:80")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_ADDR", "10.0.0.1")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_PORT", "80")
        monkeypatch.setenv(f"{service}_PORT_80_TCP_PROTO", "tcp")
    assert unknown_variables() == []
    assert load_settings() == Settings()
    assert load_settings().http_host == "127.0.0.1"


def test_a_port_that_was_meant_is_still_read_and_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_GATEWAY_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("SIE_HTTP_PORT", "http://10.0.0.1:80")
    with pytest.raises(SettingsError, match="SIE_HTTP_PORT"):
        load_settings()


def test_an_unknown_variable_is_a_warning_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_MODEL_DIR", "x")
    monkeypatch.setenv("SIE_BASE_URL", "http://client")
    monkeypatch.setenv("HF_TOKEN", "x")
    (warning,) = unknown_variables()
    assert "SIE_MODEL_DIR" in warning
    assert "SIE_MODELS_DIR" in warning


@pytest.mark.parametrize("name", Settings.gone)
def test_a_variable_that_is_gone_is_a_warning_that_says_what_to_know_instead(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    (warning,) = unknown_variables()
    assert warning == f"{name} is set but is gone: {Settings.gone[name]}"
    named = set(re.findall(r"SIE_\w+", Settings.gone[name]))
    assert named <= variables_of(Settings)


def test_a_variable_of_a_plugin_is_known_and_the_nearest_name_of_a_misspelt_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIE_CPU_ISA", "avx2")
    assert unknown_variables(["SIE_CPU_ISA"]) == []
    monkeypatch.setenv("SIE_CPU_IAS", "avx2")
    (warning,) = unknown_variables(["SIE_CPU_ISA"])
    assert "did you mean SIE_CPU_ISA?" in warning


def test_a_plugin_s_variable_is_its_default_where_it_is_unset_or_empty() -> None:
    setting = PluginSetting("SIE_CPU_ISA", "auto", "The instruction set.", allowed=("auto", "avx2"))
    assert [setting.value(each) for each in ({}, {"SIE_CPU_ISA": ""}, {"SIE_CPU_ISA": "avx2"})] == [
        "auto",
        "auto",
        "avx2",
    ]


MOST_BASIC = 32
"""Settings that one page holds."""
NO_VALUES = {
    "SIE_LOCAL_CACHE": {"hub", "HF_HOME"},
    "SIE_NATS_CREDS": {"nsc"},
    "SIE_GATEWAY_WORKERS": {"ws"},
    "SIE_MACHINE_PROFILE": {"gpu"},
}
"""What a line writes in backticks beside values of its own, other variables and routes."""


def values_of_settings() -> list[tuple[str, str]]:
    """List each setting with its default, then with each value that its line or its type names."""
    rows = []
    for (name, default, meaning), field in zip(describe_settings(), Settings.model_fields.values(), strict=True):
        named = [each for each in re.findall(r"`([^`]+)`", meaning) if not each.startswith(("SIE_", "/"))]
        named += re.findall(r"\b(0)(?: takes|: )", meaning)
        of_type = ("true", "false") if field.annotation is bool else ()
        values = [default, *of_type, *(each for each in named if each not in NO_VALUES.get(name, ()))]
        rows += [(name, value) for value in dict.fromkeys(values)]
    return rows


@pytest.mark.parametrize(("name", "value"), values_of_settings())
def test_a_setting_takes_its_default_and_each_value_that_its_line_names_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    field = name.removeprefix("SIE_").lower()
    shown = {variable: default for variable, default, _ in describe_settings()}
    is_default = getattr(load_settings(), field) == Settings.model_fields[field].default
    assert is_default == (value == shown[name])


def test_a_setting_of_few_values_names_them_in_its_line() -> None:
    for name, field in Settings.model_fields.items():
        if get_origin(field.annotation) is Literal:
            unnamed = [each for each in get_args(field.annotation) if f"`{each}`" not in (field.description or "")]
            assert not unnamed, name


def test_a_setting_of_a_plugin_takes_its_default_and_each_of_its_values_from_the_environment() -> None:
    settings = discover(Settings(), BUILTINS).settings
    assert settings
    for setting in settings:
        for value in (setting.default, *setting.allowed):
            assert setting.value({setting.variable: value}) == value


def test_every_setting_is_in_one_group_and_one_page_holds_the_basic_ones() -> None:
    groups = [describe_settings(group) for group in GROUPS]
    assert sorted(row for rows in groups for row in rows) == sorted(describe_settings())
    assert all(groups)
    assert len(describe_settings("basic")) <= MOST_BASIC


def test_no_line_of_a_setting_begins_like_a_note() -> None:
    noted = (
        r"(Whether|Which|How|Where|Seconds|Milliseconds|Comma|Bytes|Threads|Address|Port|Folder|File|Another|Same)\b"
    )
    assert [name for name, _, meaning in describe_settings() if re.match(noted, meaning)] == []


def test_settings_do_not_change_after_they_were_read() -> None:
    with pytest.raises(ValidationError):
        load_settings().http_port = 1  # type: ignore[misc]


def test_every_setting_is_described_with_its_variable_and_default() -> None:
    rows = {name: (default, meaning) for name, default, meaning in describe_settings()}
    assert set(rows) == {variable(field) for field in Settings.model_fields}
    assert rows["SIE_HTTP_PORT"][0] == "8080"
    assert rows["SIE_HF_FALLBACK"][0] == "true"
    assert rows["SIE_MODEL_FILTER"][0] == ""
    assert rows["SIE_NATS_CONFIG_TRUSTED_PRODUCERS"][0] == "sie-config"
    assert all(meaning.endswith(".") for _, meaning in rows.values())
    assert Path(rows["SIE_MODELS_DIR"][0]) == Settings().models_dir


@pytest.mark.parametrize("written", ["debug", "Debug", "DEBUG"])
def test_the_log_level_may_be_written_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("SIE_LOG_LEVEL", written)
    assert load_settings().log_level == "DEBUG"
    monkeypatch.setenv("SIE_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match="SIE_LOG_LEVEL"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SIE_LOG_LEVEL=loud", "SIE_LOG_LEVEL='LOUD': Input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("SIE_HTTP_PORT=1", "sets 'SIE_HTTP_PORT'; it may set SIE_LOG_LEVEL and SIE_ACCESS_LOG"),
        (None, "cannot be read: .*No such file"),
    ],
)
def test_a_file_of_log_settings_that_cannot_be_used_is_named_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "log.env"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("SIE_LOG_SETTINGS", str(file))
    with pytest.raises(SettingsError, match=told):
        load_settings()


def test_a_file_of_log_settings_wins_over_the_environment_and_an_option_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "log.env").write_text("# none\n\nSIE_LOG_LEVEL=debug\n")
    monkeypatch.setenv("SIE_LOG_SETTINGS", str(tmp_path / "log.env"))
    monkeypatch.setenv("SIE_LOG_LEVEL", "ERROR")
    monkeypatch.setenv("SIE_ACCESS_LOG", "slow")
    assert (load_settings().log_level, load_settings().access_log) == ("DEBUG", "slow")
    assert load_settings(log_level="WARNING").log_level == "WARNING"
