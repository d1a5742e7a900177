"""Files with quarantined rows: `requeue --row` reads them, `requeue --into` writes them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dispatcher.cli.output import whole_file
from dispatcher.operators.common.session import Row
from sink.contract.exits import CommandError, ExitCode

ROW_FILE_BYTES_MAX = 1 << 20

EXPORTED = {"id", "batch_no", "quarantined_at", "row"}
"""Members of what `quarantine export` and `quarantine show --json` write; an entry has none."""


def corrected_texts(file: Path, rows: list[Row]) -> dict[int, str]:
    """Return the text that `file` holds for each of `rows`, by its number.

    The file holds one row as it is, or lines of `quarantine export`, or what `quarantine show
    --json` says of one; there the corrected `row` may be a text or the JSON value itself. Raises
    `CommandError` (usage) for a file that cannot be read or lacks a row.
    """
    text = _read(file)
    exported = _exported(file, text)
    if exported is None:
        if len(rows) != 1:
            raise _refused(
                f"--row {file} holds one row, but {len(rows)} rows are named; name one, or give the"
                " lines that `holdfast quarantine export` wrote of them"
            )
        return {rows[0]["id"]: text}
    missing = [str(row["id"]) for row in rows if row["id"] not in exported]
    if missing:
        raise _refused(
            f"--row {file} holds row {', '.join(map(str, exported))}, and not row"
            f" {', '.join(missing)}"
        )
    return {row["id"]: exported[row["id"]] for row in rows}


def _read(file: Path) -> str:
    with file.open("rb") as source:
        raw = source.read(ROW_FILE_BYTES_MAX + 1)
    if len(raw) > ROW_FILE_BYTES_MAX:
        raise _refused(
            f"--row {file} has more than {ROW_FILE_BYTES_MAX:,} bytes; give the rows that are put"
            " back, and no others"
        )
    try:
        text = raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise _refused(
            f"--row {file} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    if not text:
        raise _refused(f"--row {file} is empty")
    return text


def _exported(file: Path, text: str) -> dict[int, str] | None:
    """Return rows by their numbers; None where the file is a row itself, whatever it holds."""
    whole = _members(text)
    if whole is not None:
        return _numbered(file, [whole]) if whole.keys() >= EXPORTED else None
    # A value may hold other characters that `splitlines` takes for the end of a line.
    lines = [_members(line) for line in text.split("\n") if line.strip()]
    if lines[0] is None or not lines[0].keys() >= EXPORTED:
        return None
    exported = [line for line in lines if line is not None and line.keys() >= EXPORTED]
    if len(exported) < len(lines):
        number = next(n for n, line in enumerate(lines, 1) if line not in exported)
        raise _refused(
            f"--row {file}: line {number} is not as `holdfast quarantine export` wrote it, one JSON"
            " object with all its members"
        )
    return _numbered(file, exported)


def _numbered(file: Path, exported: list[dict[str, Any]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for each in exported:
        number, row = each["id"], each["row"]
        if not isinstance(number, int) or number in found:
            raise _refused(f"--row {file}: the row {number!r} is there twice, or is no number")
        found[number] = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
    return found


def _members(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # Whoever reads the row itself says so in words.
        raise ValueError("a member twice")
    return members


def _refused(what: str) -> CommandError:
    return CommandError(f"{what}. Nothing was changed.", ExitCode.USAGE)


def write_lines(directory: Path, lines: Mapping[int, str]) -> list[Path]:
    """Write each line, by its row's number, into a file of `directory` of its own.

    The name follows from the row and the line. Doing it again, alone or together with others,
    changes nothing, so that a job which has read a file does not read the row again. Raises what
    `check_job_directory` does.
    """
    check_job_directory(directory)
    return [_write_line(directory, number, line) for number, line in lines.items()]


def check_job_directory(directory: Path) -> None:
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
