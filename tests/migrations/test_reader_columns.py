"""Which columns `holdfast_reader` sees, one by one. A column that is added is decided about here.

Real: the server, the grants, the role.
"""

import psycopg

READABLE = {
    "alembic_version": "serves_from version_num",
    "attempt": """duration_ms endpoint_id error finished_at number outcome retry_at sequence status
        subject_id""",
    "batch": """batch_id batch_no differing_count digest duplicate_count entry_count epoch
        keeps_suppressed quarantined_count query_id routed_at row_count run_id source_offsets stream
        suppressed_count written_at""",
    "code_session": "kind name revision seen_at works_from",
    "dead_letter": """attempts created_at died_at endpoint_id id key reason resolution resolved_at
        resolved_by sequence subject_id window_waived""",
    "dispatcher_instance": "draining heartbeat_at host id in_flight pid started_at version",
    "divergence": """batch_no differing_count digest found_at id quarantined_count row_count
        run_id""",
    "divergence_row": "divergence_id key occurred_at side subject type",
    "endpoint": """allow_cidrs breaker_threshold budget_seconds ca_ref client_cert_ref
        client_key_ref concurrency connect_timeout_ms created_at envelope id inquiry_path name
        order_policy rate_per_second schedule_seconds secret_refs slow_start_seconds starts_at state
        state_reason total_timeout_ms types updated_at""",
    "endpoint_pace": """breaker breaker_reason breaker_since breaker_until endpoint_id failures
        held_by held_until key_window_seconds key_window_seen_at openings paid_until paused probe
        stalled_since stalled_until stalled_us""",
    "entry": """batch_no created_at key occurred_at priority sequence subject_id traceparent
        type""",
    "entry_key": "batch_no content key",
    "exposure_window": """currency exposure_minor merchant_id policy_version revision stream
        window_end window_start written_at""",
    "lane": """attempt claimed_sequence delivered_sequence due_at endpoint_id head_created_at
        last_sequence lease_until priority rescued subject_id token tried_since_us turn""",
    "lane_key": "endpoint_id subject_id",
    "late_event": """amount_minor currency event_id id merchant_id occurred_at reason stream type
        watermark written_at""",
    "operator_action": "acted_at action actor id reason target",
    "quarantine": "batch_no id quarantined_at reason resolution resolved_at resolved_by",
    "replay": """actor applied_at approved_at approved_by cancelled_at cancelled_by counts
        created_at filter finished_at id item_count item_limit outside_window paid_until person
        plan_sha256 rate_per_second reason state verb""",
    "replay_item": """attempt created_at due_at endpoint_id key kind lease_until new_key outcome
        place replay_id sequence settled_at subject_id""",
    "stage": "batch_id epoch id opened_at stream",
    "stream": "acts_for adopted_at checkpoint created_at epoch name query_id run_id started_at",
    "subject": "id last_created_at last_sequence name",
    "suppressed": """batch_no cause key occurred_at priority subject_id suppressed_at traceparent
        type""",
    "transition": "ahead last_occurred_at last_type stream subject_id updated_at",
}
"""None holds an answer, a body, a refused row or a secret; `entry_key.content` is a hash."""


def test_reader_sees_the_columns_that_were_decided_about_and_no_others(
    db: psycopg.Connection,
) -> None:
    seen = db.execute("""
        SELECT c.relname, string_agg(a.attname, ' ' ORDER BY a.attname)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
          AND a.attnum > 0 AND NOT a.attisdropped
          AND has_column_privilege('holdfast_reader', c.oid, a.attnum, 'SELECT')
        GROUP BY c.relname
    """).fetchall()
    assert {table: columns.split() for table, columns in seen} == {
        table: columns.split() for table, columns in READABLE.items()
    }
