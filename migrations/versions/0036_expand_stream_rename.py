"""A stream may be renamed; the names that it had are kept, so that no new stream takes one of them.

Step: expand. Code from before may begin a new stream under a former name, as under any free one.
Locks: stream, ACCESS EXCLUSIVE, for a column with a constant default.
"""

from alembic import op

revision = "0036"
down_revision = "0035"

# Nothing else keeps a new stream from taking one of them.
LEFT = """
    DO $do$
    DECLARE
        renamed text;
    BEGIN
        LOCK TABLE holdfast.stream IN EXCLUSIVE MODE;
        SELECT string_agg(format('%s (before: %s)', name, array_to_string(former_names, ', ')),
            '; ' ORDER BY name)
        INTO renamed FROM holdfast.stream WHERE former_names <> '{}';
        IF renamed IS NOT NULL THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'the former names of streams would be lost: %s. A sink that starts under one of'
                ' them would then begin an empty ledger, and repeat transitions under new keys.'
                ' Stay at this revision; or, once no job has an old name, drop them as the owner:'
                ' UPDATE holdfast.stream SET former_names = ''{}''', renamed);
        END IF;
    END $do$
"""


# The first name is the stream's; the others are of the streams that hold entries written by
# hand for it, whose query ids are derived from their names.
RENAME = """
    CREATE FUNCTION holdfast.rename_stream(old_names text[], new_names text[], queries uuid[])
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        old_name text;
        new_name text;
        query    uuid;
        found    holdfast.stream;
    BEGIN
        -- `acted_at` is the transaction's time.
        IF NOT EXISTS (
            SELECT FROM holdfast.operator_action
            WHERE action = 'stream.rename' AND target = new_names[1] AND acted_at = now()
        ) THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE =
                'a rename needs its row in operator_action, written in the same transaction';
        END IF;
        FOR old_name, new_name, query IN SELECT * FROM unnest(old_names, new_names, queries)
        LOOP
            IF holdfast.writer_of(old_name) <> 'holdfast_sink'
                AND holdfast.writer_of(new_name) = 'holdfast_sink' THEN
                RAISE insufficient_privilege USING MESSAGE = format(
                    'only members of %I write stream %L, and %L would have no such role',
                    holdfast.writer_of(old_name), old_name, new_name);
            END IF;
            SELECT * INTO found FROM holdfast.stream WHERE name = old_name FOR UPDATE;
            IF found.name IS NULL THEN
                RAISE no_data_found USING MESSAGE = format('no stream is called %L', old_name);
            END IF;
            IF EXISTS (
                SELECT FROM holdfast.stream
                WHERE name = new_name OR (name <> old_name AND new_name = ANY (former_names))
            ) THEN
                RAISE unique_violation USING MESSAGE = format(
                    'stream %L cannot be called %L: that is or was a stream''s name',
                    old_name, new_name);
            END IF;
            IF query IS NOT NULL AND found.acts_for IS NULL THEN
                RAISE invalid_parameter_value USING MESSAGE = format(
                    'stream %L is a job''s own, and keeps its query id', old_name);
            END IF;
            -- One statement: at its end each batch refers to a stream.
            WITH moved AS (
                UPDATE holdfast.batch
                SET stream = new_name, query_id = coalesce(query, query_id)
                WHERE stream = old_name
            )
            UPDATE holdfast.stream
            SET name = new_name, query_id = coalesce(query, query_id),
                former_names = array_append(array_remove(former_names, new_name), old_name)
            WHERE name = old_name;
            UPDATE holdfast.stream SET acts_for = new_name WHERE acts_for = old_name;
            UPDATE holdfast.transition SET stream = new_name WHERE stream = old_name;
            UPDATE holdfast.stage SET stream = new_name WHERE stream = old_name;
            UPDATE holdfast.exposure_window SET stream = new_name WHERE stream = old_name;
            UPDATE holdfast.late_event SET stream = new_name WHERE stream = old_name;
            -- Each once and in order, as a person's choice is kept.
            UPDATE holdfast.endpoint
            SET streams = ARRAY(
                SELECT DISTINCT each COLLATE "C"
                FROM unnest(array_replace(streams, old_name, new_name)) AS each
                ORDER BY 1
            )
            WHERE old_name = ANY (streams);
        END LOOP;
    END $$
"""


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.stream ADD COLUMN former_names text[] NOT NULL DEFAULT '{}'")
    op.execute(RENAME)
    op.execute("REVOKE ALL ON FUNCTION holdfast.rename_stream(text[], text[], uuid[]) FROM PUBLIC")
    op.execute(
        "GRANT EXECUTE ON FUNCTION holdfast.rename_stream(text[], text[], uuid[])"
        " TO holdfast_operator"
    )


def downgrade() -> None:
    op.execute(LEFT)
    op.execute("DROP FUNCTION holdfast.rename_stream(text[], text[], uuid[])")
    op.execute("ALTER TABLE holdfast.stream DROP COLUMN former_names")
