"""Where the `holdfast` command begins: it says what to install where a package is missing."""

import sys
from typing import NoReturn

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command; exits with 2 where it is not installed."""
    if sys.version_info < (3, 11):
        _end("needs Python 3.11 or newer")
    try:
        from holdfast.dispatcher.cli.main import main as run  # noqa: PLC0415 - reported below
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        _end("is not installed: run pip install '/path/to/holdfast[cli]' (a clone or a wheel)")
    run()


def _end(why: str) -> NoReturn:
    sys.stderr.write(
        f"The command `holdfast` {why}. Nothing was changed. Without it, `python -m"
        " holdfast.migrations upgrade` upgrades a database.\n"
    )
    sys.exit(2)
