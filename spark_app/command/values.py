"""Values of options as people write them: `500ms`, `30s`, `2m`, `1h`; `512m`, `2g`; a directory."""

import re

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds

_SIZE = re.compile(r"([0-9]{1,6}) *([mg])b?", re.IGNORECASE | re.ASCII)
_MEBIBYTES = {"m": 1, "g": 1024}


def timeout_milliseconds(text: str, interval_ms: int) -> int:
    """Read an idle timeout, `0` for none; raises ValueError.

    Below two trigger intervals a tick would be too old for its batch (`input.ticks`).
    """
    if text.strip(" ") == "0":
        return 0
    timeout_ms = milliseconds(text)
    if 0 < timeout_ms < 2 * interval_ms:
        raise ValueError(
            f"an --idle-timeout of {text} is less than two times the --trigger-interval: silence"
            " cannot be noticed so soon"
        )
    return timeout_ms


def mebibytes(text: str) -> int:
    """Read a size in whole mebibytes, at least one; raises ValueError.

    >>> mebibytes("2g")
    2048
    """
    match = _SIZE.fullmatch(text.strip(" "))
    size = int(match[1]) * _MEBIBYTES[match[2].lower()] if match else 0
    if not size:
        raise ValueError(f"{text!r} is not a size: expected a number, at least 1, and m or g")
    return size


def require_checkpoint(checkpoint: str, done: str) -> None:
    """Raise CommandError (usage) for an empty `--checkpoint`: nothing was `done`."""
    if not checkpoint:
        raise CommandError(
            f"--checkpoint '' names no directory. Nothing was {done}. Name the directory in which"
            " Spark keeps its position and state.",
            ExitCode.USAGE,
            code="invalid_directory",
        )


def require_database(dsn: str | None) -> str:
    """Return the `--dsn`; raises CommandError (usage) where there is none."""
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
            code="missing_dsn",
        )
    return dsn
