"""Where the `holdfast` command begins: it says what to install where a package is missing."""

import sys

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command; exits with 2 where it is not installed."""
    if sys.version_info < (3, 11):
        sys.exit(_unfit("needs Python 3.11 or newer"))
    try:
        from holdfast.dispatcher.cli.main import main as run  # noqa: PLC0415 - reported below
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write(_unfit("is not installed: run `pip install 'holdfast[cli]'`"))
        sys.exit(2)
    run()


def _unfit(why: str) -> str:
    return (
        f"The command `holdfast` {why}. Nothing was changed. Without it, `python -m"
        " holdfast.migrations upgrade` upgrades a database.\n"
    )
