"""Files with quarantined rows: `requeue --row` reads them, `requeue --into` writes them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.dispatcher.cli.output import whole_file
from holdfast.dispatcher.operators.common.session import Row
from holdfast.sink.contract.exits import CommandError, ExitCode

ROW_FILE_BYTES_MAX = 1 << 20

EXPORTED = {"id", "batch_no", "quarantined_at", "row"}
"""Members of a row as `quarantine export` and `quarantine show --json` write it. An entry has none
of them.
"""


def corrected_texts(file: Path, rows: list[Row]) -> dict[int, str]:
    """Return the text that `file` holds for each of `rows`, by id.

    The file holds one plain row, or lines of `quarantine export`, or the output of `quarantine show
    --json`; in the latter two, the corrected `row` may be text or the JSON value itself. Raises
    `CommandError` (usage) for a file that cannot be parsed or lacks a row.
    """
    text = _read(file)
    exported = _exported(file, text)
    if exported is None:
        if len(rows) != 1:
            raise _refused(
                f"--row {file} holds one row, but {len(rows)} rows are named; name one, or give"
                " lines that `holdfast quarantine export` wrote"
            )
        return {rows[0]["id"]: text}
    missing = [str(row["id"]) for row in rows if row["id"] not in exported]
    if missing:
        raise _refused(
            f"--row {file} holds row {', '.join(map(str, exported))}, but not row"
            f" {', '.join(missing)}"
        )
    return {row["id"]: exported[row["id"]] for row in rows}


def _read(file: Path) -> str:
    with file.open("rb") as source:
        raw = source.read(ROW_FILE_BYTES_MAX + 1)
    if len(raw) > ROW_FILE_BYTES_MAX:
        raise CommandError(
            f"--row {file} has more than {ROW_FILE_BYTES_MAX:,} bytes; include only the rows to"
            " put back. Nothing was changed.",
            ExitCode.USAGE,
            code="file_too_large",
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
    """Return texts by row id; None if the file is itself one row."""
    whole = _members(text)
    if whole is not None:
        return _numbered(file, [whole]) if whole.keys() >= EXPORTED else None
    # Not `splitlines`: a value may contain other characters that it treats as line ends.
    lines = [_members(line) for line in text.split("\n") if line.strip()]
    if lines[0] is None or not lines[0].keys() >= EXPORTED:
        return None
    exported = [line for line in lines if line is not None and line.keys() >= EXPORTED]
    if len(exported) < len(lines):
        number = next(n for n, line in enumerate(lines, 1) if line not in exported)
        raise _refused(
            f"--row {file}: line {number} is not a JSON object with all members that `holdfast"
            " quarantine export` writes"
        )
    return _numbered(file, exported)


def _numbered(file: Path, exported: list[dict[str, Any]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for each in exported:
        number, row = each["id"], each["row"]
        if not isinstance(number, int) or number in found:
            raise _refused(f"--row {file}: the row {number!r} is duplicate or not a number")
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
        # The parser of the row reports this in detail.
        raise ValueError("duplicate member")
    return members


def _refused(what: str) -> CommandError:
    return CommandError(f"{what}. Nothing was changed.", ExitCode.USAGE, code="invalid_file")


def write_lines(directory: Path, lines: Mapping[int, str]) -> list[Path]:
    """Write each line, by its row's id, to its own file in `directory`; return the files.

    The file name is derived from the row and the line, so writing again changes nothing and a job
    does not read a row twice. Raises what `check_job_directory` does.
    """
    check_job_directory(directory)
    return [_write_line(directory, number, line) for number, line in lines.items()]


def check_job_directory(directory: Path) -> None:
    """Raise `CommandError` (usage) unless this is the directory of a job that reads lines.

    It must exist and hold no Parquet files.
    """
    if not directory.is_dir():
        raise CommandError(
            f"--into {directory} is not a directory. Nothing was changed; name the one that the"
            " job reads.",
            ExitCode.USAGE,
            code="invalid_directory",
        )
    if any(each.suffix == ".parquet" for each in directory.iterdir()):
        raise CommandError(
            f"--into {directory} contains Parquet files, and a job that reads those cannot read"
            " lines. Nothing was changed; name the directory of a job that reads JSON lines.",
            ExitCode.USAGE,
            code="invalid_directory",
        )


def _write_line(directory: Path, number: int, line: str) -> Path:
    digest = hashlib.sha256(line.encode()).hexdigest()[:32]
    path = directory / f"requeued-{number}-{digest}.json"
    if not path.exists():
        with whole_file(path) as file:
            file.write(f"{line}\n")
    return path
