"""Help says what the docstrings say, letter by letter."""

import pytest
import typer
from typer.testing import CliRunner

from holdfast.dispatcher.cli.main import _print_error, fill_help, help_of


def test_paragraph_is_one_line_and_brackets_stay() -> None:
    text = "Make it,\n    all of it.\n\n    [endpoint.NAME] is\n    a table."
    assert help_of(text) == "Make it, all of it.\n\n\\[endpoint.NAME] is a table."


@pytest.mark.parametrize("depth", [0, 1])
def test_help_of_every_command_shows_its_docstring_as_written(depth: int) -> None:
    app, group = typer.Typer(rich_markup_mode="rich"), typer.Typer()

    @group.command()
    @app.command()
    def made() -> None:
        """Make them.

        [endpoint.NAME] names one
        each.
        """

    @group.command()
    @app.command()
    def other() -> None:
        """Do something else."""

    app.add_typer(group, name="group")
    fill_help(app)
    words = [*["group"] * depth, "made", "--help"]
    said = CliRunner().invoke(app, words).output
    assert "[endpoint.NAME] names one each." in said


def test_error_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _print_error("stream a\x1b[2J\u202eb\nsecond line [red]")
    said = capsys.readouterr().err
    assert all(line.isprintable() for line in said.splitlines())
    assert "\\x1b[2J\\u202eb" in said
    assert "second line [red]" in said
