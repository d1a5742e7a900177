"""`python -m spark_app run ...` and `spark-submit spark_app/__main__.py run ...`."""

import sys
from pathlib import Path

if not __package__:
    # Started as a file, as spark-submit does: then sys.path has this folder, and not the one that
    # contains `spark_app` and `sink`.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry) != here)]

from sink.contract.exits import CommandError
from spark_app.command.cli import app


def main() -> None:
    """Run the command; a failure is one line on stderr and an exit code of `ExitCode`."""
    try:
        app(prog_name="spark_app")
    except CommandError as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201 - the command's own report
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
