"""Enum types.

The schema itself and the roles exist before the first revision: migrations/roles.py.
"""

from alembic import op

revision = "0001"
down_revision = None

ENUMS = {
    "outcome": "delivered throttled failed rejected gone unknown refused",
    "endpoint_state": "active paused disabled",
    "order_policy": "stop skip",
    "breaker_state": "closed open half_open slow_start",
    "dead_reason": "exhausted rejected refused",
    "dead_resolution": "redelivered reissued dismissed",
    "quarantine_reason": (
        "malformed missing_event_id missing_merchant missing_type missing_amount missing_time"
        " bad_text bad_amount bad_time amount_out_of_range time_out_of_range wrong_currency"
        " bad_subject bad_key bad_type bad_data key_conflict body_too_large"
    ),
    "late_reason": "late future_dated duplicate",
    "replay_verb": "redeliver reissue",
    "replay_state": "planned applying applied cancelled",
}


def upgrade() -> None:
    op.execute("REVOKE ALL ON SCHEMA holdfast FROM PUBLIC")
    for name, values in ENUMS.items():
        labels = ", ".join(f"'{value}'" for value in values.split())
        op.execute(f"CREATE TYPE holdfast.{name} AS ENUM ({labels})")


def downgrade() -> None:
    for name in ENUMS:
        op.execute(f"DROP TYPE holdfast.{name}")
