"""What each role may do with transition states and suppressed decisions."""

import psycopg
import pytest

ROWS = """
    INSERT INTO holdfast.transition VALUES (1, 's', 't', now(), now());
    INSERT INTO holdfast.stream (name) VALUES ('s')
"""
ADD_STATE = "INSERT INTO holdfast.transition VALUES (2, 's', 't', now(), now())"
KEEP = """
    INSERT INTO holdfast.suppressed
    VALUES (1, gen_random_uuid(), now(), 1, 't', now(), 0, 'repeated', NULL, '[]', '{}')
"""
MOVE = "UPDATE holdfast.transition SET last_type = 'u', last_occurred_at = now()"
TOUCH = "UPDATE holdfast.transition SET updated_at = now()"
RENAME = "UPDATE holdfast.transition SET stream = 'u'"
FORGET = ("DELETE FROM holdfast.transition", "DELETE FROM holdfast.suppressed")
CHANGE = "UPDATE holdfast.suppressed SET data = data"
READ = "SELECT key, type, cause FROM holdfast.suppressed"
CONTENT = ("SELECT data FROM holdfast.suppressed", "SELECT key_parts FROM holdfast.suppressed")
STATES = "SELECT * FROM holdfast.transition"
LOCK = "SELECT holdfast.lock_subject(1)"
ACT = "UPDATE holdfast.stream SET acts_for = 'u'"

ALLOWED = {
    "holdfast_sink": (ADD_STATE, MOVE, TOUCH, STATES, KEEP),
    "holdfast_operator": (MOVE, STATES, READ, *CONTENT, FORGET[0], LOCK),
    "holdfast_reader": (STATES, READ),
    "holdfast_dispatcher": (),
    "holdfast_janitor": (),
}
EVERYTHING = (
    LOCK,
    ADD_STATE,
    MOVE,
    TOUCH,
    RENAME,
    STATES,
    KEEP,
    *FORGET,
    CHANGE,
    READ,
    *CONTENT,
    ACT,
)


@pytest.mark.parametrize("role", ALLOWED)
def test_role_may_do_its_work_and_nothing_else(db: psycopg.Connection, role: str) -> None:
    db.execute(ROWS.encode())
    may = []
    for statement in EVERYTHING:
        with db.transaction(force_rollback=True):
            db.execute(f"SET LOCAL ROLE {role}".encode())
            try:
                with db.transaction():
                    db.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                continue
            may.append(statement)
    assert set(may) == set(ALLOWED[role])
