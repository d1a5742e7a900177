"""A folder with a checkpoint in it as one archive, and back to another place.

A checkpoint names the path where it was begun, and those of the files it has read, in its text
files. There the archive has a word instead of its folder.
"""

import os
import tarfile
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support.golden.version import FILES, FIRST_FILES, SEED, THEN
from tests.support.job.job_stream import Rows, required, stream

WORD = "@FOLDER@"


def pack(folder: Path, archive: Path) -> None:
    """Write the archive of a folder; UnicodeDecodeError: one that is no text names it."""
    path_bytes = str(folder).encode()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(archive, "w:xz") as packed:
        copy = Path(scratch, "copy")
        for path in _files(folder):
            content = path.read_bytes()
            if path_bytes in content:
                content = content.decode().replace(str(folder), WORD).encode()
            elif path.suffix == ".crc" and path_bytes in _of_checksum(path):
                # Of the text with the path, which is another one.
                continue
            copy.write_bytes(content)
            os.utime(copy, (path.stat().st_mtime,) * 2)
            packed.add(copy, str(path.relative_to(folder)), filter=_anonymous)


def unpack(archive: Path, folder: Path) -> None:
    """Make the folder of an archive."""
    with tarfile.open(archive) as packed:
        # Python 3.11 has filters from 3.11.4 on.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)  # noqa: S202 - it is ours
    for path in _files(folder):
        content = path.read_bytes()
        if WORD.encode() in content:
            path.write_bytes(content.replace(WORD.encode(), str(folder).encode()))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _of_checksum(path: Path) -> bytes:
    """The content that Hadoop's checksum file `.name.crc` is of."""
    of = path.with_name(path.name.removeprefix(".").removesuffix(".crc"))
    return of.read_bytes() if of.exists() else b""


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


Dump = dict[str, Any]

_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname <> 'alembic_version'
    ORDER BY relname
"""
_COLUMNS = """
    SELECT attname, attidentity <> '' FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_SEQUENCE = """
    SELECT setval(pg_get_serial_sequence(%s, %s), (SELECT max({column}) FROM {table}))
"""


def dump(dsn: str) -> Dump:
    """Every row of every table, the schema's revision, and when this was."""
    with psycopg.connect(dsn) as db:
        db.execute("SET TIME ZONE 'UTC'")
        tables = [name for (name,) in db.execute(_TABLES)]
        rows = {name: _all(db, name) for name in tables}
        revision = db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone()
        assert revision
        # Rows that a migration made are in every database.
        rows = {name: values for name, values in rows.items() if values}
        return {"made_at": datetime.now(UTC).isoformat(), "revision": revision[0], "rows": rows}


def load(dsn: str, dumped: Dump) -> None:
    """Put the rows into a database with the same revision of the schema.

    Clock times of the dump become as long ago as they were then: its days have no partitions now.
    """
    made_at = datetime.fromisoformat(dumped["made_at"])
    shift = datetime.now(UTC) - made_at
    with psycopg.connect(dsn) as db:
        # Without foreign keys and triggers: the rows are complete.
        db.execute("SET session_replication_role = replica")
        for name, rows in dumped["rows"].items():
            table = sql.Identifier("holdfast", name)
            columns = dict(db.execute(_COLUMNS, [f"holdfast.{name}"]).fetchall())
            statement = sql.SQL(
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
                " SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %s)"
            ).format(table=table, columns=sql.SQL(", ").join(map(sql.Identifier, columns)))
            db.execute(sql.SQL("DELETE FROM {}").format(table))
            db.execute(statement, [Jsonb([_moved(row, made_at, shift) for row in rows])])
            for column in (column for column, identity in columns.items() if identity):
                advance = sql.SQL(_SEQUENCE).format(column=sql.Identifier(column), table=table)
                db.execute(advance, [f"holdfast.{name}", column])


def _all(db: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    statement = sql.SQL("SELECT to_jsonb(t) FROM {} t").format(sql.Identifier("holdfast", table))
    return sorted((row for (row,) in db.execute(statement)), key=str)


def _moved(row: dict[str, Any], made_at: datetime, shift: timedelta) -> dict[str, Any]:
    def moved(name: str, value: Any) -> Any:
        if not name.endswith("_at") or value is None:
            return value
        moment = datetime.fromisoformat(value)
        # Events and windows are of another time.
        recent = abs(moment - made_at) < timedelta(hours=1)
        return (moment + shift).isoformat() if recent else value

    return {name: moved(name, value) for name, value in row.items()}


def expected(policy: Path) -> tuple[Rows, Rows, Counter[tuple[object, ...]]]:
    """Recompute it, to be compared with `job_outcome.published`."""
    made = stream(SEED, FILES)
    batches = made.expected(policy, THEN, FIRST_FILES)
    changed_at = [*made.watermarks()][FIRST_FILES]
    assert changed_at
    for batch in batches:
        for rows in (batch.windows, batch.decisions):
            for place, row in enumerate(rows):
                if row.window_end <= changed_at:
                    rows[place] = row._replace(policy_version="2026-11-01")
    return required(batches)
