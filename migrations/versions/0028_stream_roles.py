"""A stream may have its own role, `holdfast_sink_<stream>`; then only its members write the stream.

Without such a role nothing changes: every member of holdfast_sink can write the stream. With it, a
login that is not a member cannot write batches of the stream, change its row, or drop or read its
stages. Keys, subjects and entries are shared by all streams.
"""

from alembic import op

revision = "0028"
down_revision = "0027"

_TO_SINK = "TO holdfast_sink'"
_TO_WRITER = "TO ' || quote_ident(holdfast.writer_of(of_stream))"

STAGE_FUNCTIONS = {
    "open_stage(text, bigint, bigint)": "of_stream",
    "drop_stages(text, bigint)": "of_stream",
    "analyze_stage(bigint)": "(SELECT stream FROM holdfast.stage WHERE id = of_id)",
}
"""Each with the stream that it is about."""


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION holdfast.writer_of(of_stream text) RETURNS text
        LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
            -- As text: a name would be cut off after 63 bytes.
            SELECT coalesce(max(rolname::text), 'holdfast_sink') FROM pg_roles
            WHERE rolname::text = 'holdfast_sink_' || of_stream
        $$
    """)
    op.execute("""
        CREATE FUNCTION holdfast.refuse_other_writer(of_stream text) RETURNS void
        LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            writer text := holdfast.writer_of(of_stream);
        BEGIN
            -- The login: in a function that runs as its owner, nothing else says who calls.
            IF writer <> 'holdfast_sink' AND NOT pg_has_role(session_user, writer, 'MEMBER') THEN
                RAISE insufficient_privilege USING MESSAGE = format(
                    'stream %L is written by members of %I, and %I is none',
                    of_stream, writer, session_user);
            END IF;
        END $$
    """)
    op.execute("""
        CREATE FUNCTION holdfast.stream_writer() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            IF TG_TABLE_NAME = 'batch' THEN
                PERFORM holdfast.refuse_other_writer(NEW.stream);
            -- Operators adopt a checkpoint.
            ELSIF TG_OP = 'INSERT'
                OR NOT pg_has_role(session_user, 'holdfast_operator', 'MEMBER') THEN
                PERFORM holdfast.refuse_other_writer(NEW.name);
            END IF;
            RETURN NEW;
        END $$
    """)
    for signature in ("writer_of(text)", "refuse_other_writer(text)", "stream_writer()"):
        op.execute(f"REVOKE ALL ON FUNCTION holdfast.{signature} FROM PUBLIC")
    op.execute("""
        CREATE TRIGGER stream_writer BEFORE INSERT ON holdfast.batch
            FOR EACH ROW EXECUTE FUNCTION holdfast.stream_writer()
    """)
    op.execute("""
        CREATE TRIGGER stream_writer BEFORE INSERT OR UPDATE ON holdfast.stream
            FOR EACH ROW EXECUTE FUNCTION holdfast.stream_writer()
    """)
    for signature, stream in STAGE_FUNCTIONS.items():
        _rewrite(signature, "BEGIN", f"BEGIN {_refusing(stream)}")
    _rewrite("open_stage(text, bigint, bigint)", _TO_SINK, _TO_WRITER)


def downgrade() -> None:
    _rewrite("open_stage(text, bigint, bigint)", _TO_WRITER, _TO_SINK)
    for signature, stream in STAGE_FUNCTIONS.items():
        _rewrite(signature, f"BEGIN {_refusing(stream)}", "BEGIN")
    for table in ("stream", "batch"):
        op.execute(f"DROP TRIGGER stream_writer ON holdfast.{table}")
    for signature in ("stream_writer()", "refuse_other_writer(text)", "writer_of(text)"):
        op.execute(f"DROP FUNCTION holdfast.{signature}")


def _refusing(stream: str) -> str:
    return f"PERFORM holdfast.refuse_other_writer({stream});"


def _rewrite(signature: str, old: str, new: str) -> None:
    """Replace the first `old` in a function's text, whatever else a revision changed in it."""
    op.execute(f"""
        DO $do$
        DECLARE
            body text := pg_get_functiondef('holdfast.{signature}'::regprocedure);
            old  text := $old${old}$old$;
        BEGIN
            ASSERT position(old IN body) > 0;
            EXECUTE overlay(body PLACING $new${new}$new$
                FROM position(old IN body) FOR length(old));
        END $do$
    """)
