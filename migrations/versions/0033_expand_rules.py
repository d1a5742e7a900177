"""The rule of a job that rejected a row: a reason `rejected`, and the rule's name beside it.

Step: expand. Code from before writes neither. It cannot show a row of reason `rejected`, so replace
API servers before a job begins to reject rows by a rule.
Locks: quarantine, ACCESS EXCLUSIVE, for a nullable column and for as long as it takes to read the
table once.
"""

from alembic import op

revision = "0033"
down_revision = "0032"

_REASONS_BEFORE = (
    "'malformed', 'missing_event_id', 'missing_merchant', 'missing_type', 'missing_amount',"
    " 'missing_time', 'bad_text', 'bad_amount', 'bad_time', 'amount_out_of_range',"
    " 'time_out_of_range', 'wrong_currency', 'bad_subject', 'bad_key', 'bad_type', 'bad_data',"
    " 'key_conflict', 'body_too_large', 'future_dated'"
)

_ROW = "row         text"
_WITH_RULE = f"{_ROW}, rule text"


def upgrade() -> None:
    op.execute("ALTER TYPE holdfast.quarantine_reason ADD VALUE IF NOT EXISTS 'rejected'")
    # As text: a new label of an enum cannot be used before COMMIT.
    op.execute("""
        ALTER TABLE holdfast.quarantine
            ADD COLUMN rule text,
            ADD CONSTRAINT ck_quarantine_rule
                CHECK ((reason::text = 'rejected') = (rule IS NOT NULL)) NOT VALID,
            ADD CONSTRAINT ck_quarantine_rule_name
                CHECK (rule ~ '^[a-z][a-z0-9_]{0,63}$') NOT VALID
    """)
    for name in ("rule", "rule_name"):
        op.execute(f"ALTER TABLE holdfast.quarantine VALIDATE CONSTRAINT ck_quarantine_{name}")
    op.execute("GRANT SELECT (rule) ON holdfast.quarantine TO holdfast_reader")
    _rewrite_open_stage(_ROW, _WITH_RULE)


def downgrade() -> None:
    _rewrite_open_stage(_WITH_RULE, _ROW)
    # The version before has no reason for such a row; it says what it is not.
    op.execute("""
        UPDATE holdfast.quarantine SET detail = left('rejected by ' || rule || ': ' || detail, 1000)
        WHERE rule IS NOT NULL
    """)
    op.execute("ALTER TABLE holdfast.quarantine DROP COLUMN rule")
    op.execute("ALTER TYPE holdfast.quarantine_reason RENAME TO quarantine_reason_with_rejected")
    op.execute(f"CREATE TYPE holdfast.quarantine_reason AS ENUM ({_REASONS_BEFORE})")
    op.execute("""
        ALTER TABLE holdfast.quarantine ALTER COLUMN reason TYPE holdfast.quarantine_reason
        USING (CASE reason::text WHEN 'rejected' THEN 'bad_data' ELSE reason::text END)
            ::holdfast.quarantine_reason
    """)
    op.execute("DROP TYPE holdfast.quarantine_reason_with_rejected")


def _rewrite_open_stage(old: str, new: str) -> None:
    """Replace the columns of a stage, whatever else a revision changed in the function."""
    op.execute(f"""
        DO $do$
        DECLARE
            body text := pg_get_functiondef(
                'holdfast.open_stage(text, bigint, bigint)'::regprocedure);
        BEGIN
            ASSERT position($old${old}$old$ IN body) > 0;
            EXECUTE replace(body, $old${old}$old$, $new${new}$new$);
        END $do$
    """)
