"""Revokes from the reader the columns that may contain an answer, a refused row or a secret.

`dead_letter.detail` and `replay_item.detail` quote what a receiver answered, `quarantine.detail` a
refused row. `endpoint.headers` and, in audit rows of earlier versions, `operator_action.detail`
have literal values of headers. The query of `endpoint.url` may be a credential. Columns that are
added to these tables later need a grant of their own.
"""

from alembic import op

revision = "0029"
down_revision = "0028"

READABLE = {
    "dead_letter": (
        "id, endpoint_id, subject_id, sequence, key, created_at, reason, attempts, died_at,"
        " resolution, resolved_at, resolved_by, window_waived"
    ),
    "replay_item": (
        "replay_id, endpoint_id, subject_id, sequence, created_at, key, new_key, outcome,"
        " settled_at, kind, place, attempt, due_at, lease_until"
    ),
    "quarantine": "id, batch_no, reason, quarantined_at, resolution, resolved_at, resolved_by",
    "endpoint": (
        "id, name, types, secret_refs, allow_cidrs, connect_timeout_ms, total_timeout_ms,"
        " concurrency, rate_per_second, schedule_seconds, order_policy, state, state_reason,"
        " starts_at, created_at, updated_at, envelope, ca_ref, client_cert_ref, client_key_ref,"
        " budget_seconds, breaker_threshold, slow_start_seconds, inquiry_path"
    ),
    "operator_action": "id, acted_at, actor, action, target, reason",
}


def upgrade() -> None:
    for table, columns in READABLE.items():
        op.execute(f"REVOKE SELECT ON holdfast.{table} FROM holdfast_reader")
        op.execute(f"GRANT SELECT ({columns}) ON holdfast.{table} TO holdfast_reader")


def downgrade() -> None:
    op.execute("""
        GRANT SELECT ON holdfast.dead_letter, holdfast.replay_item, holdfast.endpoint,
            holdfast.operator_action TO holdfast_reader
    """)
    op.execute("GRANT SELECT (detail) ON holdfast.quarantine TO holdfast_reader")
