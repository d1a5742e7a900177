"""Privileges of each role. The database refuses everything that is not granted here.

Nothing is granted on partitions, so new ones need no grants: for a statement on the parent only
the privileges on the parent count, and no role can access a partition directly.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

SERVICES = "holdfast_sink, holdfast_dispatcher, holdfast_operator, holdfast_janitor"

EVERYTHING = (
    "holdfast.stream, holdfast.batch, holdfast.entry_key, holdfast.subject, holdfast.entry,"
    " holdfast.quarantine, holdfast.endpoint, holdfast.lane, holdfast.attempt,"
    " holdfast.dead_letter, holdfast.dispatcher_instance, holdfast.replay, holdfast.replay_item,"
    " holdfast.operator_action, holdfast.exposure_window, holdfast.late_event"
)

GRANTS = (
    f"USAGE ON SCHEMA holdfast TO {SERVICES}, holdfast_reader",
    f"EXECUTE ON FUNCTION holdfast.ensure_partitions(integer) TO {SERVICES}",
    f"SELECT ON holdfast.alembic_version TO {SERVICES}, holdfast_reader",
    # sink: adds, and moves its own counters; no delivery state, no update of what it wrote
    "SELECT, INSERT ON holdfast.stream TO holdfast_sink",
    (
        "UPDATE (query_id, epoch, run_id, checkpoint, adopted_at, started_at)"
        " ON holdfast.stream TO holdfast_sink"
    ),
    "SELECT, INSERT ON holdfast.batch TO holdfast_sink",
    # a batch numbers itself before its counts, and so its row, are known
    "USAGE ON SEQUENCE holdfast.batch_batch_no_seq TO holdfast_sink",
    "SELECT, INSERT ON holdfast.entry_key TO holdfast_sink",
    "SELECT, INSERT ON holdfast.subject TO holdfast_sink",
    (
        "UPDATE (last_sequence, last_type, last_occurred_at, last_created_at)"
        " ON holdfast.subject TO holdfast_sink"
    ),
    "INSERT ON holdfast.entry TO holdfast_sink",
    "INSERT ON holdfast.quarantine TO holdfast_sink",
    "SELECT, INSERT ON holdfast.exposure_window TO holdfast_sink",
    (
        "UPDATE (revision, exposure_minor, currency, policy_version, written_at)"
        " ON holdfast.exposure_window TO holdfast_sink"
    ),
    "INSERT ON holdfast.late_event TO holdfast_sink",
    # dispatcher: reads the outbox, owns delivery state, adds attempts
    (
        "SELECT ON holdfast.stream, holdfast.subject, holdfast.entry, holdfast.entry_key"
        " TO holdfast_dispatcher"
    ),
    "SELECT, UPDATE (routed_at) ON holdfast.batch TO holdfast_dispatcher",
    (
        "SELECT, UPDATE (state, state_reason, breaker, breaker_failures, breaker_until, updated_at)"
        " ON holdfast.endpoint TO holdfast_dispatcher"
    ),
    "SELECT, INSERT, UPDATE ON holdfast.lane TO holdfast_dispatcher",
    "SELECT, INSERT ON holdfast.attempt, holdfast.dead_letter TO holdfast_dispatcher",
    "SELECT, UPDATE (state, applied_at) ON holdfast.replay TO holdfast_dispatcher",
    "SELECT, UPDATE (outcome, settled_at) ON holdfast.replay_item TO holdfast_dispatcher",
    "SELECT, INSERT, UPDATE, DELETE ON holdfast.dispatcher_instance TO holdfast_dispatcher",
    "INSERT ON holdfast.operator_action TO holdfast_dispatcher",
    # operator: sees everything, changes what people decide, never what was recorded
    f"SELECT ON {EVERYTHING} TO holdfast_operator",
    "UPDATE (query_id, adopted_at) ON holdfast.stream TO holdfast_operator",
    "INSERT, UPDATE ON holdfast.endpoint TO holdfast_operator",
    "INSERT, UPDATE ON holdfast.lane TO holdfast_operator",
    "UPDATE (resolution, resolved_at, resolved_by) ON holdfast.dead_letter TO holdfast_operator",
    "INSERT, UPDATE ON holdfast.replay, holdfast.replay_item TO holdfast_operator",
    "INSERT ON holdfast.operator_action TO holdfast_operator",
    # reader: everything but what a body, a refused row or an answer may hold
    (
        "SELECT ON holdfast.stream, holdfast.batch, holdfast.subject, holdfast.entry_key,"
        " holdfast.endpoint, holdfast.lane, holdfast.dead_letter, holdfast.dispatcher_instance,"
        " holdfast.replay, holdfast.replay_item, holdfast.operator_action,"
        " holdfast.exposure_window, holdfast.late_event TO holdfast_reader"
    ),
    (
        "SELECT (subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no,"
        " traceparent) ON holdfast.entry TO holdfast_reader"
    ),
    (
        "SELECT (endpoint_id, subject_id, sequence, number, finished_at, outcome, status,"
        " duration_ms, error, retry_at) ON holdfast.attempt TO holdfast_reader"
    ),
    (
        "SELECT (id, batch_no, reason, detail, quarantined_at) ON holdfast.quarantine"
        " TO holdfast_reader"
    ),
)


def upgrade() -> None:
    for grant in GRANTS:
        op.execute(f"GRANT {grant}")


def downgrade() -> None:
    roles = f"{SERVICES}, holdfast_reader"
    op.execute(f"REVOKE ALL ON {EVERYTHING}, holdfast.alembic_version FROM {roles}")
    op.execute(f"REVOKE ALL ON SEQUENCE holdfast.batch_batch_no_seq FROM {roles}")
    op.execute(f"REVOKE ALL ON SEQUENCE holdfast.batch_batch_no_seq FROM {roles}")
    op.execute(f"REVOKE ALL ON FUNCTION holdfast.ensure_partitions(integer) FROM {roles}")
    op.execute(f"REVOKE ALL ON SCHEMA holdfast FROM {roles}")
