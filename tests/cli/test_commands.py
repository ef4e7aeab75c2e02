import click
import pytest
from click.testing import CliRunner

from sie_core import __version__
from sie_core.cli import COMMANDS, main
from sie_core.settings import Settings


def test_the_help_lists_every_command_with_its_own_first_line() -> None:
    listed = CliRunner().invoke(main, ["--help"], terminal_width=200).output
    for name, line in COMMANDS.items():
        assert line in listed
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(200).rstrip(".") == line.rstrip(".")


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
