"""The schema revisions that this version works on, and the rule that accepts a session.

The code names the newest revision, for which it was built, and the oldest on which it works. The
database has a revision, and names the oldest code that it still serves: the one that was built for
the revision `serves_from`. So versions can run side by side while a database is upgraded.
"""

from dataclasses import dataclass

SCHEMA_REVISION = "0038"
"""The revision for which this version was built; a test compares it with the migrations."""

WORKS_FROM = "0031"
"""The oldest revision on which this version works."""

SESSIONS_SINCE = "0032"
"""The revision from which on `code_session` records who runs. Before it, nobody is recorded."""

READ = b"""
    -- As JSON, because before revision 0032 there is no column serves_from. One row; no index.
    SELECT v.version_num AS revision, to_jsonb(v) ->> 'serves_from' AS serves_from,
           current_setting('transaction_read_only')::boolean AS read_only
    FROM holdfast.alembic_version AS v
"""
"""The one statement that reads what `misfit` judges; it works on every revision."""

RECORD = b"""
    -- Uses pk_code_session. A row is written at most once a minute.
    INSERT INTO holdfast.code_session AS known (kind, name, revision, works_from)
    VALUES (%(kind)s, %(name)s, %(revision)s, %(works_from)s)
    ON CONFLICT (kind, name) DO UPDATE
    SET revision = excluded.revision, works_from = excluded.works_from, seen_at = excluded.seen_at
    WHERE known.seen_at < excluded.seen_at - interval '1 minute'
        OR (known.revision, known.works_from) <> (excluded.revision, excluded.works_from)
"""
"""Records that a process runs, with the parameters of `session`."""

LEAVE = b"""
    -- Uses pk_code_session. The next upgrade deletes the row.
    UPDATE holdfast.code_session SET seen_at = '-infinity'
    WHERE kind = %(kind)s AND name = %(name)s
"""
"""Records that a process ended in order, with the parameters of `session`."""


@dataclass(frozen=True, slots=True)
class Code:
    """The range of a version of Holdfast: revisions of four digits, which compare as text."""

    revision: str = SCHEMA_REVISION
    works_from: str = WORKS_FROM


CODE = Code()
"""This version."""


def misfit(revision: str | None, serves_from: str | None, code: Code = CODE) -> str | None:
    """Return why `code` must not work on a database, and what to do; None: it may.

    `revision` is None without one. `serves_from` is None before revision 0032: until then each
    revision served only the code that was built for it or later.
    """
    if revision is None:
        return "the database has no schema revision: run `holdfast db upgrade`"
    serves_from = serves_from or revision
    if code.revision < serves_from:
        advice = "upgrade this process"
    elif revision < code.works_from:
        advice = "upgrade the database with `holdfast db upgrade`"
    else:
        return None
    return (
        f"the database has schema revision {revision} and serves code from {serves_from} on;"
        f" this version is built for {code.revision} and works from {code.works_from} on: {advice}"
    )


def session(kind: str, name: str) -> dict[str, str]:
    """Return the parameters of `RECORD`; `kind` is sink, dispatcher or api."""
    return {
        "kind": kind,
        "name": name,
        "revision": CODE.revision,
        "works_from": CODE.works_from,
    }


def records(revision: str) -> bool:
    """Whether a database of this revision records sessions."""
    return revision >= SESSIONS_SINCE
