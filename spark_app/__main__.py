"""`spark-submit spark_app/__main__.py run ...`, where `holdfast` is installed."""

import os
import sys

if not __package__:
    # spark-submit runs this file as a script and puts this folder first on sys.path, where its
    # package `operator` would hide that of the standard library. `os` is loaded before any script.
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib imports operator
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]

from typer import BadParameter
from typer.main import get_command

from holdfast.sink.contract import standard_error
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import exact
from holdfast.spark_app.command.cli import app


def main() -> None:
    """Run the command; a failure is one line on stderr and an exit code of `ExitCode`."""
    standard_error.install()
    try:
        exact(get_command(app), BadParameter)(prog_name="spark_app")
    except CommandError as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201 - the command's own report
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
