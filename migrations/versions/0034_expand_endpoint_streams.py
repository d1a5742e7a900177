"""The streams that an endpoint takes; none named: all, as before.

Step: expand. Code from before ignores the column, and delivers what all streams decide: `endpoint
set --stream` waits until no dispatcher of such code runs.
Locks: endpoint, ACCESS EXCLUSIVE, for a column with a constant default.
"""

from alembic import op

revision = "0034"
down_revision = "0033"

_STARTED = "(p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)"
_OF_STREAM = (
    f"{_STARTED} AND (p.streams = ''{{}}'' OR (SELECT coalesce(n.acts_for, n.name)"
    " FROM holdfast.batch w JOIN holdfast.stream n ON n.name = w.stream"
    " WHERE w.batch_no = e.batch_no) = ANY (p.streams))"
)


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.endpoint ADD COLUMN streams text[] NOT NULL DEFAULT '{}'")
    op.execute("GRANT SELECT (streams) ON holdfast.endpoint TO holdfast_reader")
    _replace_in_undelivered(_STARTED, _OF_STREAM)


def downgrade() -> None:
    _replace_in_undelivered(_OF_STREAM, _STARTED)
    op.execute("ALTER TABLE holdfast.endpoint DROP COLUMN streams")


def _replace_in_undelivered(old: str, new: str) -> None:
    """Change one condition of `undelivered_in`, whatever else a revision changed in it."""
    op.execute(f"""
        DO $do$
        DECLARE
            body text := pg_get_functiondef('holdfast.undelivered_in(text, date)'::regprocedure);
        BEGIN
            ASSERT position('{old}' IN body) > 0;
            EXECUTE replace(body, '{old}', '{new}');
        END $do$
    """)
