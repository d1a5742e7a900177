"""The revisions' files: each names its phase, and an expand revision takes nothing away."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory

from holdfast.migrations import upgrade as module
from holdfast.migrations.upgrade import FIRST, Step, steps_after
from tests.support.upgrades.builds import write_pair

FORBIDDEN = {
    "DROP": r"\bDROP\b(?! NOT NULL\b)",
    "RENAME": r"\bRENAME\b",
    "TRUNCATE": r"\bTRUNCATE\b",
    "DELETE": r"\bDELETE FROM\b",
    "REVOKE": r"\bREVOKE\b(?! (ALL|EXECUTE) ON FUNCTION\b)",
    "SET NOT NULL": r"\bSET NOT NULL\b",
    "ALTER TYPE": r"\bALTER (COLUMN )?\w+ (SET DATA )?TYPE\b",
    "a constraint that is validated at once": (
        r"\bADD CONSTRAINT\b(?![^;]*\bNOT VALID\b)|\bADD (CHECK|UNIQUE|FOREIGN|PRIMARY)\b"
    ),
    "a unique index": r"\bCREATE UNIQUE INDEX\b",
    "a new column that old code does not fill": (
        r"\bADD COLUMN\b(?=[^,;]*\bNOT NULL\b)(?![^,;]*\bDEFAULT\b)"
    ),
    "a default that rewrites the table": (
        r"\bADD COLUMN\b[^,;]*\b(clock_timestamp|random|\w*uuid\w*)\("
    ),
}
"""What older code could not work on, or would wait for too long."""


def faults(sql: str) -> list[str]:
    """Return what an expand revision's SQL may not do; bodies of functions and names are free."""
    text = re.sub(r"\$(\w*)\$.*?\$\1\$", "''", sql, flags=re.DOTALL)
    text = re.sub(r"--[^\n]*|'[^']*'|\"[^\"]*\"", "''", text)
    made = set(re.findall(r"\bCREATE TABLE (?:IF NOT EXISTS )?([\w.]+)", text, re.IGNORECASE))
    results = []
    for statement in text.split(";"):
        changed = re.search(r"\b(?:ALTER TABLE|INDEX \w+ ON) (?:ONLY )?([\w.]+)", statement)
        if changed and changed[1] in made:
            continue
        results += [
            name for name, rule in FORBIDDEN.items() if re.search(rule, statement, re.IGNORECASE)
        ]
    return results


def _sql(step: Step, *, down: bool = False) -> str:
    out = io.StringIO()
    ends = (step.before, step.revision)
    if down:
        command.downgrade(module._config(output=out), ":".join(reversed(ends)), sql=True)
    else:
        command.upgrade(module._config(output=out), ":".join(ends), sql=True)
    return out.getvalue()


def _phased() -> Iterator[Step]:
    directory = ScriptDirectory.from_config(module._config())
    yield from steps_after(directory, f"{int(FIRST) - 1:04}")


def _check(steps: list[Step]) -> None:
    for step in steps:
        assert re.fullmatch(rf"{step.revision}_(expand|contract)_\w+", step.name), step.name
        assert step.expands == (step.serves_from is None), step.name
        if step.expands:
            assert faults(_sql(step)) == [], step.name
        else:
            assert str(step.serves_from) <= step.revision
            assert f"SET serves_from = '{step.serves_from}'" in _sql(step), step.name
            assert "SET serves_from = " in _sql(step, down=True), step.name


def test_every_revision_is_named_for_its_phase_and_keeps_to_it() -> None:
    steps = list(_phased())
    assert steps[0].name == "0032_expand_code_range"
    _check(steps)


def test_next_revisions_keep_their_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in module.VERSIONS.glob("*.py"):
        (tmp_path / file.name).symlink_to(file)
    pair = write_pair(tmp_path, module.head())
    monkeypatch.setattr(module, "VERSIONS", tmp_path)
    steps = list(_phased())
    assert [each.revision for each in steps][-2:] == list(pair)
    assert [each.expands for each in steps][-2:] == [True, False]
    _check(steps)


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("DROP TABLE a", "DROP"),
        ("ALTER TABLE a DROP COLUMN b", "DROP"),
        ("ALTER TABLE a DROP CONSTRAINT b", "DROP"),
        ("ALTER TABLE a RENAME COLUMN b TO c", "RENAME"),
        ("alter table a rename to b", "RENAME"),
        ("TRUNCATE a", "TRUNCATE"),
        ("DELETE FROM a", "DELETE"),
        ("REVOKE SELECT ON a FROM b", "REVOKE"),
        ("ALTER TABLE a ALTER COLUMN b SET NOT NULL", "SET NOT NULL"),
        ("ALTER TABLE a ALTER b TYPE bigint", "ALTER TYPE"),
        ("ALTER TABLE a ALTER COLUMN b SET DATA TYPE bigint", "ALTER TYPE"),
        ("ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0)", "a constraint that is validated at once"),
        ("ALTER TABLE a ADD UNIQUE (b)", "a constraint that is validated at once"),
        ("CREATE UNIQUE INDEX i ON a (b)", "a unique index"),
        (
            "ALTER TABLE a ADD COLUMN b text, ADD COLUMN c text NOT NULL",
            "a new column that old code does not fill",
        ),
        (
            "ALTER TABLE a ADD COLUMN b timestamptz DEFAULT clock_timestamp()",
            "a default that rewrites the table",
        ),
    ],
)
def test_expand_revision_that_takes_away_is_found(sql: str, name: str) -> None:
    assert faults(sql) == [name]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE a (b text NOT NULL); CREATE UNIQUE INDEX i ON a (b)",
        "ALTER TABLE a ADD COLUMN b text",
        "ALTER TABLE a ADD COLUMN b integer NOT NULL DEFAULT 0",
        "ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0) NOT VALID",
        "ALTER TABLE a ALTER COLUMN b DROP NOT NULL",
        "ALTER TYPE a ADD VALUE 'b'",
        "CREATE INDEX IF NOT EXISTS i ON a (b)",
        "COMMENT ON TABLE a IS 'DROP TABLE a'",
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ DELETE FROM a; DROP TABLE b $$",
        "REVOKE EXECUTE ON FUNCTION f() FROM PUBLIC",
    ],
)
def test_expand_revision_may_add(sql: str) -> None:
    assert faults(sql) == []
