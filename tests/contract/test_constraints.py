"""Each constraint of the schema refuses a row that breaks it, whoever writes the row.

A constraint refuses what the code never writes: it holds for other code, for an older
version, and for a person with `psql`.
"""

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg import sql

ZEROS = "decode(repeat('00', 32), 'hex')"
APPROVED = "approved_at = now(), approved_by = 'b', approved_by_person = 'bob'"
A_KEY = "'00000000-0000-0000-0000-000000000001'"
ANOTHER = "gen_random_uuid()"

VALID: Mapping[str, Mapping[str, str]] = {
    "stream": {"name": "'payouts'"},
    "batch": {
        "stream": "'payouts'",
        "query_id": A_KEY,
        "batch_id": "0",
        "run_id": A_KEY,
        "epoch": "1",
        "row_count": "1",
        "entry_count": "1",
        "duplicate_count": "0",
        "differing_count": "0",
        "suppressed_count": "0",
        "quarantined_count": "0",
        "digest": ZEROS,
        "written_at": "now()",
    },
    "entry_key": {"key": A_KEY, "content": A_KEY, "batch_no": "1"},
    "subject": {"name": "'m_1'"},
    "transition": {
        "subject_id": "1",
        "stream": "'payouts'",
        "last_type": "'a'",
        "last_occurred_at": "now()",
        "updated_at": "now()",
    },
    "entry": {
        "subject_id": "1",
        "sequence": "1",
        "created_at": "now()",
        "key": A_KEY,
        "type": "'a'",
        "occurred_at": "now()",
        "priority": "0",
        "batch_no": "1",
        "body": "'{}'",
    },
    "suppressed": {
        "batch_no": "1",
        "key": A_KEY,
        "suppressed_at": "now()",
        "subject_id": "1",
        "type": "'a'",
        "occurred_at": "now()",
        "priority": "0",
        "cause": "'repeated'",
        "key_parts": "'[]'",
        "data": "'{}'",
    },
    "quarantine": {"batch_no": "1", "reason": "'bad_data'", "detail": "'d'", "row": "'{}'"},
    "divergence": {
        "batch_no": "1",
        "digest": ZEROS,
        "run_id": A_KEY,
        "row_count": "1",
        "quarantined_count": "0",
        "differing_count": "0",
    },
    "exposure_window": {
        "stream": "'payouts'",
        "merchant_id": "'m_1'",
        "window_start": "'2026-11-02T12:00Z'",
        "window_end": "'2026-11-02T12:15Z'",
        "revision": "1",
        "exposure_minor": "0",
        "currency": "'USD'",
        "policy_version": "'1'",
    },
    # Its trigger adds the row of endpoint_pace.
    "endpoint": {"name": "'psp'", "url": "'https://psp.example/'", "secret_refs": "'{env:S}'"},
    "lane": {
        "endpoint_id": "1",
        "subject_id": "1",
        "delivered_sequence": "0",
        "last_sequence": "1",
        "priority": "0",
        "head_created_at": "now()",
    },
    "attempt": {
        "endpoint_id": "1",
        "subject_id": "1",
        "sequence": "1",
        "number": "1",
        "finished_at": "now()",
        "token": A_KEY,
        "outcome": "'unknown'",
    },
    "dead_letter": {
        "endpoint_id": "1",
        "subject_id": "1",
        "sequence": "1",
        "key": A_KEY,
        "created_at": "now()",
        "reason": "'rejected'",
        "detail": "'d'",
        "attempts": "1",
    },
    "cancellation": {
        "subject_id": "1",
        "sequence": "1",
        "key": A_KEY,
        "cancelled_by": "'a'",
        "reason": "'r'",
    },
    "replay": {
        "id": A_KEY,
        "verb": "'redeliver'",
        "filter": """'{"types": []}'""",
        "item_count": "1",
        "reason": "'r'",
        "actor": "'a'",
    },
    "replay_item": {
        "replay_id": A_KEY,
        "endpoint_id": "1",
        "subject_id": "1",
        "sequence": "1",
        "created_at": "now()",
        "key": A_KEY,
        "kind": "'release'",
        "place": "1",
    },
    "operator_action": {"actor": "'a'", "action": "'b'", "target": "'c'", "reason": "'r'"},
    "access_token": {
        "id": A_KEY,
        "name": "'console'",
        "role": "'operator'",
        "sha256": ZEROS,
        "created_by": "'a'",
        "expires_at": "now() + interval '1 day'",
        "owner": "'alice'",
    },
    "proposal": {
        "id": A_KEY,
        "verb": "'v'",
        "target": "'t'",
        "detail": "'{}'",
        "sha256": ZEROS,
        "reason": "'r'",
        "actor": "'a'",
        "person": "'alice'",
    },
    "code_session": {
        "kind": "'sink'",
        "name": "'payouts'",
        "revision": "'0032'",
        "works_from": "'0032'",
    },
}
"""A row of each table with a constraint of its own, in an order in which they refer to others."""

BROKEN = {
    "ck_access_token_name": ["name = 'Console'", "name = repeat('a', 64)"],
    "ck_access_token_owner": ["owner = 'Alice'"],
    "ck_access_token_sha256": ["sha256 = 'short'"],
    "ck_attempt_delivered": ["outcome = 'delivered'", "outcome = 'delivered', status = 302"],
    "ck_attempt_number": ["number = 0"],
    "ck_attempt_response": ["response = repeat('a', 4097)"],
    "ck_batch_batch_id": ["batch_id = -1"],
    "ck_batch_counts": [
        "row_count = 2",
        "entry_count = 0",
        "entry_count = 2, duplicate_count = -1",
        "entry_count = 2, suppressed_count = -1",
        "entry_count = 2, quarantined_count = -1",
        "differing_count = 1",
        "differing_count = -1",
    ],
    "ck_batch_digest": ["digest = 'short'"],
    "ck_code_session_kind": ["kind = 'other'"],
    "ck_dead_letter_resolution": ["resolution = 'dismissed'", "resolved_at = now()"],
    "ck_divergence_accepted": ["accepted_at = now()", "accepted_by = 'alice'"],
    "ck_divergence_digest": ["digest = 'short'"],
    "ck_endpoint_breaker_threshold": ["breaker_threshold = -1", "breaker_threshold = 10001"],
    "ck_endpoint_budget_seconds": ["budget_seconds = 59", "budget_seconds = 2592001"],
    "ck_endpoint_client_cert": ["client_cert_ref = 'file:a'", "client_key_ref = 'file:a'"],
    "ck_endpoint_concurrency": ["concurrency = 0", "concurrency = 1025"],
    "ck_endpoint_headers": ["headers = '[]'"],
    "ck_endpoint_inquiry_path": ["inquiry_path = 'a'", "inquiry_path = '/' || repeat('a', 1024)"],
    "ck_endpoint_name": ["name = 'PSP'"],
    "ck_endpoint_rate_per_second": ["rate_per_second = 0"],
    "ck_endpoint_secret_refs": ["secret_refs = '{}'", "secret_refs = '{a,b,c}'"],
    "ck_endpoint_slow_start_seconds": ["slow_start_seconds = -1", "slow_start_seconds = 86401"],
    # The trigger that fills it is for a change of `starts_at` alone.
    "ck_endpoint_start": ["starts_after = 1"],
    "ck_endpoint_timeouts": [
        "connect_timeout_ms = 0",
        "connect_timeout_ms = total_timeout_ms + 1",
        "total_timeout_ms = 120001",
    ],
    "ck_endpoint_url": ["url = 'ftp://psp.example/'", "url = 'https://' || repeat('a', 2041)"],
    "ck_endpoint_pace_breaker": ["breaker_until = now()", "breaker = 'open'"],
    "ck_endpoint_pace_counts": ["failures = -1", "openings = -1", "stalled_us = -1"],
    "ck_endpoint_pace_key_window": [
        "key_window_seconds = 1",
        "key_window_seconds = -1, key_window_seen_at = now()",
    ],
    "ck_endpoint_pace_probe": [
        f"probe = {A_KEY}",
        "breaker = 'half_open', breaker_until = now()",
    ],
    "ck_endpoint_pace_stall": ["stalled_until = now()"],
    "ck_entry_body": ["body = 'a'", "body = convert_to(repeat('a', 262145), 'UTF8')"],
    "ck_entry_sequence": ["sequence = 0"],
    "ck_exposure_window_order": ["window_start = window_end"],
    "ck_exposure_window_revision": ["revision = 0"],
    "ck_lane_attempt": ["attempt = -1"],
    "ck_lane_lease": [f"token = {A_KEY}", "lease_until = now()"],
    "ck_lane_cancelled": ["routed_sequence = 1", "routed_sequence = 0"],
    "ck_lane_on_hold": ["on_hold_reason = 'a'", "on_hold_since = now()"],
    "ck_lane_rescued": ["rescued = 1", "rescued = -1"],
    "ck_lane_sequences": ["delivered_sequence = -1", "delivered_sequence = 2"],
    "ck_operator_action_reason": ["reason = ''", "reason = repeat('a', 2001)"],
    "ck_proposal_applied": [
        "applied_at = now()",
        f"applied_at = now(), cancelled_at = now(), {APPROVED}",
    ],
    "ck_proposal_reason": ["reason = ''", "reason = repeat('a', 2001)"],
    "ck_proposal_second_person": [
        "approved_at = now(), approved_by = 'b'",
        "approved_at = now(), approved_by_person = 'bob'",
        "approved_at = now(), approved_by = 'b', approved_by_person = 'alice'",
    ],
    "ck_proposal_sha256": ["sha256 = 'short'"],
    "ck_quarantine_resolution": ["resolution = 'dismissed'", "resolved_at = now()"],
    "ck_quarantine_rule": ["rule = 'no_such_order'", "reason = 'rejected'"],
    "ck_quarantine_rule_name": [
        f"reason = 'rejected', rule = {rule}" for rule in ("''", "'No'", "repeat('a', 65)")
    ],
    "ck_replay_filter": ["filter = '{}'"],
    "ck_replay_item_count": ["item_count = -1"],
    "ck_replay_plan_sha256": ["plan_sha256 = 'short'"],
    "ck_replay_rate_per_second": ["rate_per_second = 0"],
    "ck_replay_reason": ["reason = ''", "reason = repeat('a', 2001)"],
    "ck_replay_item_attempt": ["attempt = -1"],
    "ck_replay_item_lease": [f"token = {A_KEY}", "lease_until = now()"],
    "ck_replay_item_settled": [f"settled_at = now(), token = {A_KEY}, lease_until = now()"],
    "ck_stream_epoch": ["epoch = -1"],
    "ck_stream_name": ["name = 'Payouts'", "name = '-a'"],
    "ck_subject_last_sequence": ["last_sequence = -1"],
    "ck_subject_name": ["name = ''", "name = repeat('a', 1025)"],
}
"""Changes of the valid row that a check refuses; each breaks no other check."""

TWICE = {
    "pk_stream": ("stream", {}),
    "pk_batch": ("batch", {"batch_no": "99"}),
    "uq_batch_batch_no": ("batch", {"batch_id": "1"}),
    "pk_entry_key": ("entry_key", {"batch_no": "2", "content": ANOTHER}),
    "uq_subject_name": ("subject", {"id": "99"}),
    "pk_transition": ("transition", {"last_type": "'b'"}),
    "pk_entry": ("entry", {"key": ANOTHER}),
    "pk_suppressed": ("suppressed", {"subject_id": "2"}),
    "uq_divergence_batch_no": ("divergence", {"id": "99"}),
    "pk_exposure_window": ("exposure_window", {"revision": "2"}),
    "uq_endpoint_name": ("endpoint", {"id": "99"}),
    "pk_lane_key": ("lane_key", {}),
    "pk_cancellation": ("cancellation", {"sequence": "2"}),
    "uq_cancellation_everywhere": ("cancellation", {"id": "99"}),
    "pk_attempt": ("attempt", {"token": ANOTHER}),
    "uq_dead_letter_open": ("dead_letter", {"id": "99"}),
    "pk_replay_item": ("replay_item", {"key": ANOTHER}),
    "uq_access_token_name": (
        "access_token",
        {"id": ANOTHER, "sha256": f"sha256({ZEROS})"},
    ),
    "uq_access_token_sha256": ("access_token", {"id": ANOTHER, "name": "'other'"}),
    "uq_proposal_open": ("proposal", {"id": ANOTHER}),
}
"""The keys by which something exists once: the table, and what else differs in the second row."""


@pytest.fixture
def rows(db: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A row in each table, in a transaction that is rolled back."""
    db.autocommit = False
    for table, values in VALID.items():
        columns, expressions = ", ".join(values), ", ".join(values.values())
        db.execute(f"INSERT INTO holdfast.{table} ({columns}) VALUES ({expressions})".encode())
    yield db
    db.rollback()


def _refusal(db: psycopg.Connection, statement: str) -> str | None:
    """Return the constraint that refuses a statement, which is undone; None for none."""
    try:
        with db.transaction(force_rollback=True):
            assert db.execute(statement.encode()).rowcount == 1, statement
    except psycopg.errors.IntegrityError as error:
        return error.diag.constraint_name
    return None


def test_each_check_refuses_what_breaks_it(rows: psycopg.Connection) -> None:
    checks = rows.execute("""
        SELECT conname, conrelid::regclass::text FROM pg_constraint
        WHERE contype = 'c' AND coninhcount = 0 AND connamespace = 'holdfast'::regnamespace
    """)
    tables: dict[str, str] = dict(checks.fetchall())
    assert set(tables) == set(BROKEN), "a check has no change that breaks it, or is gone"
    refused = {
        (name, change): _refusal(rows, f"UPDATE {tables[name]} SET {change}")
        for name, changes in BROKEN.items()
        for change in changes
    }
    assert {case: by for case, by in refused.items() if by != case[0]} == {}


def test_each_key_refuses_a_second_row(rows: psycopg.Connection) -> None:
    refused = {}
    for name, (table, changed) in TWICE.items():
        columns = [
            column
            for (column,) in rows.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
                [f"holdfast.{table}"],
            )
        ]
        listed = sql.SQL(", ").join(map(sql.Identifier, columns)).as_string()
        taken = ", ".join(changed.get(column, f'"{column}"') for column in columns)
        refused[name] = _refusal(
            rows,
            f"INSERT INTO holdfast.{table} ({listed}) OVERRIDING SYSTEM VALUE"
            f" SELECT {taken} FROM holdfast.{table}",
        )
    partition = {"pk_entry": "entry_", "pk_suppressed": "suppressed_", "pk_attempt": "attempt_"}
    wrong = {
        name: by
        for name, by in refused.items()
        if by != name and not (by or "").startswith(partition.get(name, name))
    }
    assert wrong == {}
