"""Tokens and replays that are there already get a person; the previous version may go on adding."""

import psycopg
import pytest

from holdfast.migrations.upgrade import downgrade, upgrade

TOKEN = """
    INSERT INTO holdfast.access_token (id, name, role, sha256, created_by, expires_at)
    VALUES (gen_random_uuid(), %s, 'admin', sha256(%s), 'a', now())
"""
REPLAY = """
    INSERT INTO holdfast.replay (id, verb, filter, item_count, reason, actor)
    VALUES (gen_random_uuid(), 'redeliver', '{"subject": "m"}', 0, 'r', %s)
"""
PROPOSAL = """
    INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person)
    VALUES (gen_random_uuid(), 'v', 't', '{}', sha256('x'), 'r', 'Alice', 'alice')
"""


def test_tokens_and_replays_get_the_person_that_their_names_say(
    dsn: str, db: psycopg.Connection
) -> None:
    downgrade(dsn, "0023")
    db.execute(TOKEN, ["alice", b"1"])
    for actor in ("Alice", "token alice"):
        db.execute(REPLAY, [actor])
    upgrade(dsn)
    # As the previous version does while both run.
    db.execute(TOKEN, ["bob", b"2"])
    db.execute(REPLAY, ["token bob"])
    owners = db.execute("SELECT name, owner FROM holdfast.access_token ORDER BY name").fetchall()
    assert owners == [("alice", "alice"), ("bob", "bob")]
    persons = db.execute("SELECT person FROM holdfast.replay ORDER BY created_at").fetchall()
    assert persons == [("alice",), ("alice",), (None,)]
    downgrade(dsn, "0023")
    assert db.execute("SELECT count(*) FROM holdfast.access_token").fetchone() == (2,)


def test_tokens_of_one_owner_are_not_two_people_after_the_schema_went_back(
    dsn: str, db: psycopg.Connection
) -> None:
    for name in ("al-1", "al-2", "bob"):
        db.execute(TOKEN, [name, name.encode()])
    db.execute("UPDATE holdfast.access_token SET owner = 'alice' WHERE name LIKE 'al-%'")
    db.execute("UPDATE holdfast.access_token SET expires_at = now() + interval '1 day'")
    db.execute("UPDATE holdfast.access_token SET revoked_at = created_at WHERE name = 'al-2'")
    downgrade(dsn, "0024")
    upgrade(dsn)
    found = "SELECT name, revoked_at = created_at FROM holdfast.access_token ORDER BY name"
    assert db.execute(found).fetchall() == [("al-1", False), ("al-2", True), ("bob", None)]


@pytest.mark.parametrize("owner", ["Alice", " alice", "", "\u0430lice"])
def test_owner_has_one_spelling(db: psycopg.Connection, owner: str) -> None:
    db.execute(TOKEN, ["alice", b"1"])
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("UPDATE holdfast.access_token SET owner = %s", [owner])


def test_proposal_is_not_approved_by_its_own_person_nor_applied_without_approval(
    db: psycopg.Connection,
) -> None:
    db.execute(PROPOSAL)
    approve = (
        "UPDATE holdfast.proposal SET approved_by = 'token x', approved_by_person = %s,"
        " approved_at = now()"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(approve, ["alice"])
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("UPDATE holdfast.proposal SET applied_by = 'a', applied_at = now()")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(PROPOSAL)
    db.execute(approve, ["bob"])
