"""Run the `holdfast` command as a person would: exit code and both streams.

A process takes half a second of processor time before it begins, so the groups that only ask or
change the database run in this one.
`tests/integration/cli/database/test_operator_commands.py` holds that both say the same.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from holdfast.dispatcher.cli import main as command

_HERE = frozenset(
    {
        "attempt",
        "attempts",
        "audit",
        "batch",
        "check",
        "config",
        "database",
        "db",
        "dispatcher",
        "dispatchers",
        "dead-letter",
        "dead",
        "endpoint",
        "entry",
        "entries",
        "overview",
        "proposal",
        "quarantine",
        "receipts",
        "redeliver",
        "reissue",
        "replay",
        "status",
        "stream",
        "subject",
        "subjects",
        "suppressed",
        "token",
        "trace",
        "why",
        "--version",
    }
)
"""What neither starts anything, nor takes signals, nor sets up a log for its whole process."""


class Done(subprocess.CompletedProcess[str]):
    """How a command ended."""

    @property
    def json(self) -> Any:
        """Return its standard output, read as JSON."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """Return the last line of its standard error, the JSON of an error with --json."""
        read: dict[str, Any] = json.loads(self.stderr.splitlines()[-1])
        return read


def runs_here(word: str) -> bool:
    """Return whether a command that begins with `word` needs no process of its own."""
    return word in _HERE


def holdfast(
    *arguments: str,
    dsn: str | None = None,
    environment: Mapping[str, str] | None = None,
    process: bool | None = None,
    code: int | None = None,
) -> Done:
    """Run `holdfast ARGUMENTS`, which must end with `code` where one is given.

    It runs in this process where that makes no difference, unless `process` says otherwise: True
    for a test of threads, or of a pipe, a locale or a closed stream; False for a command of another
    group that is refused before it begins.
    """
    settings = {k: v for k, v in os.environ.items() if k != "HOLDFAST_DSN"}
    settings |= {"COLUMNS": "200", **(environment or {})}
    if dsn is not None:
        settings["HOLDFAST_DSN"] = dsn
    if process is None:
        process = _HERE.isdisjoint(arguments[:1])
    done = _in_a_process(arguments, settings) if process else _here(arguments, settings)
    assert code is None or done.returncode == code, (arguments, done.stdout, done.stderr)
    return done


def _in_a_process(arguments: tuple[str, ...], settings: Mapping[str, str]) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.dispatcher.cli.main", *arguments],
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Done(done.args, done.returncode, done.stdout, done.stderr)


def _here(arguments: tuple[str, ...], settings: Mapping[str, str]) -> Done:
    with _stream() as out, _stream() as err:
        with _as_a_process(arguments, settings), redirect_stdout(out), redirect_stderr(err):
            code = _ended()
        return Done(arguments, code, _written(out), _written(err))


def _ended() -> int:
    try:
        command.main()
    except SystemExit as end:
        # Words instead of a code would be an error of the command's, and are one here.
        return int(end.code or 0)
    return 0


@contextmanager
def _as_a_process(arguments: tuple[str, ...], settings: Mapping[str, str]) -> Iterator[None]:
    """Let the command find what a process of its own would, and take back what it leaves."""
    environment = dict(os.environ)
    argv, stdin, program = sys.argv, sys.stdin, sys.modules["__main__"]
    with Path(os.devnull).open() as nothing:
        sys.argv, sys.stdin = [command.__file__, *arguments], nothing
        sys.modules["__main__"] = command  # where a usage error finds the program's name
        os.environ.clear()
        os.environ.update(settings)
        try:
            yield
        finally:
            sys.argv, sys.stdin, sys.modules["__main__"] = argv, stdin, program
            os.environ.clear()
            os.environ.update(environment)


def _stream() -> TextIOWrapper:
    return TextIOWrapper(TemporaryFile(), encoding="utf-8", write_through=True)


def _written(stream: TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
