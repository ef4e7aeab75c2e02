from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sie_core import __version__
from sie_core.cli import COMMANDS, main
from sie_core.cli.composition.compose import BadSettings, find_plugins, read_settings
from sie_core.commands import GROUP, find_commands
from sie_core.settings import Settings


def test_the_help_lists_every_command_with_its_own_first_line() -> None:
    for name, found in find_commands(COMMANDS).items():
        *group, last = name.split()
        assert found.help in CliRunner().invoke(main, [*group, "--help"], terminal_width=200).output
        command: click.Command | None = main
        for part in (*group, last):
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), part)
        assert command is not None
        assert command.name == last
        assert command.get_short_help_str(200).rstrip(".") == found.help.rstrip(".")


def bring(folder: Path, name: str, lists: str) -> None:
    """Put a distribution with a list of commands on the path."""
    (folder / f"{name}.py").write_text(lists, encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:COMMANDS\n", encoding="utf-8")


def test_a_distribution_brings_commands_and_a_broken_or_clashing_one_takes_none_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bring(tmp_path, "sie_test_broken_commands", "raise RuntimeError('no module of mine')")
    bring(
        tmp_path,
        "sie_test_commands",
        "import click\nfrom sie_core.commands import Command\n"
        "COMMANDS = [Command(name, 'Mine.', 'sie_test_commands:greet') for name in ('greet', 'serve')]\n"
        "@click.command('greet')\ndef greet():\n    click.echo('hello')\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(main, "found", find_commands(COMMANDS))
    assert CliRunner().invoke(main, ["greet"]).output == "hello\n"
    assert main.found["serve"].target == "sie_core.cli.serve:command"
    assert "sie_test_commands:COMMANDS brings the command 'serve', which sie_core.cli.serve:command has" in caplog.text
    assert "sie_test_broken_commands:COMMANDS cannot be read (no module of mine)" in caplog.text


def test_a_command_whose_distribution_is_not_installed_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "found", {})
    result = CliRunner().invoke(main, ["gateway"])
    assert result.exit_code == 2
    assert "No such command 'gateway'. `pip install sie-cluster` brings it." in result.output


def test_the_version_is_the_distributions() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"sie {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["swerve"]).exit_code == 2


def test_every_option_of_serve_is_a_setting() -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    named = {"models", "more"}  # MODEL and --model, which become two settings
    assert {parameter.name for parameter in command.params} - named <= Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SIE_MAX_BATCH_COST", "many", "SIE_MAX_BATCH_COST='many'"),
        ("SIE_LOG_LEVEL", "LOUD", "SIE_LOG_LEVEL='LOUD'"),
        ("SIE_DRAIN_TIMEOUT_S", "-1", "SIE_DRAIN_TIMEOUT_S='-1'"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "plugins"])
def test_a_bad_value_stops_the_start_and_is_named(command: str, variable: str, value: str, said: str) -> None:
    result = CliRunner().invoke(main, [command], env={variable: value})
    assert result.exit_code == 2
    assert said in result.output


def test_an_option_wins_over_a_bad_variable_whatever_settings_plugins_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_HTTP_PORT", "many")
    settings = read_settings(http_port=9000)
    assert find_plugins(settings).settings_models
    monkeypatch.setenv("SIE_NATS_STORAGE", "stone")
    with pytest.raises(BadSettings, match="SIE_NATS_STORAGE='stone'"):
        find_plugins(settings)
