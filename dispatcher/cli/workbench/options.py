"""Options that `listen`, `trigger`, `sign`, `verify` and `conform` share, and their parsers.

The receiver kit needs an optional package, so it is imported inside functions.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds

if TYPE_CHECKING:
    from holdfast.receiver.message.secret import Secret

STANDARD_INPUT = "-"
_SECONDS = re.compile(r"0|[1-9][0-9]{0,11}")

SecretRefs = Annotated[
    list[str] | None,
    typer.Option("--secret-ref", help="env:VAR or file:PATH; repeatable, each is used."),
]
Body = Annotated[
    str, typer.Argument(metavar="[FILE]", help="The exact bytes of the body; - is standard input.")
]


def usage(message: str, *, code: str) -> CommandError:
    """Return the error for an invalid argument."""
    return CommandError(f"{message} Nothing was done.", ExitCode.USAGE, code=code)


@contextmanager
def installed(command: str) -> Iterator[None]:
    """Turn a failed import in the block into a `CommandError` that names the missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"`holdfast {command}` needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[dispatcher]'.",
            ExitCode.USAGE,
            code="package_missing",
        ) from None


def secrets_of(references: Sequence[str] | None) -> "list[Secret]":
    """Load the secrets behind `references`; raises `CommandError`."""
    from holdfast.receiver.errors import SecretError  # noqa: PLC0415 - see above
    from holdfast.receiver.message.secret import Secret  # noqa: PLC0415 - see above

    if not references:
        raise usage(
            "no signing secret: pass --secret-ref env:VAR or --secret-ref file:PATH.",
            code="missing_parameter",
        )
    try:
        return [Secret.load(reference) for reference in references]
    except SecretError as error:
        raise usage(f"{error}.", code="invalid_secret") from None


def bytes_of(path: str, what: str, most: int = BODY_BYTES_MAX) -> bytes:
    """Read a file, or standard input for `-`, of `most` bytes or fewer; raises `CommandError`."""
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(most + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(most + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a file"
        raise usage(f"{what} {path} cannot be read: {why}.", code="unreadable_file") from None
    if len(content) > most:
        raise usage(
            f"{what} {path} is larger than {most:,} bytes, the limit of every receiver.",
            code="file_too_large",
        )
    return content


def moment_of(option: str, text: str) -> datetime:
    """Parse a time: RFC 3339 in UTC, Unix seconds, or `now`; raises `CommandError`."""
    from holdfast.receiver.message.body import parse_rfc3339  # noqa: PLC0415 - see above

    if text == "now":
        return datetime.now(UTC)
    try:
        if _SECONDS.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        return parse_rfc3339(text)
    except (ValueError, OverflowError, OSError):
        raise usage(
            f"{option} {text!r} is not a time: use 2026-11-02T12:15:00Z, Unix seconds, or now.",
            code="invalid_time",
        ) from None


def seconds_of(option: str, text: str) -> float:
    """Parse `500ms`, `90s`, `5m` or `2h` into seconds; raises `CommandError`."""
    try:
        if (duration := milliseconds(text)) > 0:
            return duration / 1000
    except ValueError:
        pass
    raise usage(
        f"{option} {text!r} is not a duration such as 500ms, 90s, 5m or 2h.",
        code="invalid_duration",
    )
