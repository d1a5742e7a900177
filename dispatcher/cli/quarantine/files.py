"""Files that the quarantine commands write: there as a whole, or not at all."""

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from sink.contract.exits import CommandError, ExitCode


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """Yield a file that gets the name `path` when the block ends well, and is gone when not.

    Until then it has a hidden name in the same directory, which Spark's file source does not read.
    A link is followed; what is no file, such as a pipe or a device, is written to as it is. Raises
    `CommandError` where no file can be.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        # Before links are followed: a pipe of this process has no name that it could be opened by.
        with path.open("w", encoding="utf-8") as stream:
            yield stream
        return
    path = _destination(path)
    # Without the file's own name, which may be as long as a name can be.
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _flush_directory(path.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def write_lines(directory: Path, lines: Mapping[int, str]) -> list[Path]:
    """Write each line, by its row's number, into a file of `directory` of its own.

    The name follows from the row and the line. Doing it again, alone or together with others,
    changes nothing, so that a job which has read a file does not read the row again. Raises what
    `takes_lines` does.
    """
    takes_lines(directory)
    return [_write_line(directory, number, line) for number, line in lines.items()]


def takes_lines(directory: Path) -> None:
    """Raise `CommandError` (usage) unless this is the directory of a job that reads lines.

    It is not where it is not there, or where a job of Parquet files reads it.
    """
    if not directory.is_dir():
        raise CommandError(
            f"--into {directory} is not a directory. Nothing was changed; name the one that the"
            " job reads.",
            ExitCode.USAGE,
        )
    if any(each.suffix == ".parquet" for each in directory.iterdir()):
        raise CommandError(
            f"--into {directory} holds Parquet files, and a job that reads them cannot read lines."
            " Nothing was changed; name the directory of a job that reads JSON lines.",
            ExitCode.USAGE,
        )


def _write_line(directory: Path, number: int, line: str) -> Path:
    digest = hashlib.sha256(line.encode()).hexdigest()[:32]
    path = directory / f"requeued-{number}-{digest}.json"
    if not path.exists():
        with whole_file(path) as file:
            file.write(f"{line}\n")
    return path


def _destination(path: Path) -> Path:
    real = path.resolve()
    if real.is_dir():
        raise CommandError(
            f"{path} is a directory. Nothing was written; name a file.", ExitCode.USAGE
        )
    if not real.parent.is_dir():
        raise CommandError(
            f"the directory of {path} is not there. Nothing was written; make it first.",
            ExitCode.USAGE,
        )
    return real


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
