"""A function with which a sink adopts the checkpoint that continues a batch of the ledger.

The proof is the batch: its query id, its number and its digest. The sink's role could change the
stream's query id without any proof, but it may not write the audit trail; the function checks,
adopts, adds the batch from which the new checkpoint counts, and writes the audit row.
"""

from alembic import op

revision = "0031"
down_revision = "0030"

SIGNATURE = "continue_stream(text, uuid, bigint, bytea, uuid, bigint)"


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION holdfast.continue_stream(
            of_stream text, proof_query uuid, proof_batch bigint, proof_digest bytea,
            new_query uuid, new_batch bigint, OUT outcome text, OUT adopted uuid
        )
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            fence      bigint;
            found      bytea;
            new_digest bytea := sha256(convert_to(concat_ws(' ',
                'holdfast/continuation/v1', proof_query, proof_batch,
                encode(proof_digest, 'hex'), new_query, new_batch), 'UTF8'));
        BEGIN
            -- A comparison with null is not true, so a null would pass for a proof.
            IF num_nulls(
                of_stream, proof_query, proof_batch, proof_digest, new_query, new_batch) > 0 THEN
                RAISE null_value_not_allowed USING MESSAGE = 'a continuation has no null in it';
            END IF;
            -- An empty batch of the query that goes on would take the place of a real one.
            IF proof_query = new_query THEN
                RAISE invalid_parameter_value
                    USING MESSAGE = 'a continuation has a query id of its own';
            END IF;
            SELECT query_id, epoch INTO adopted, fence FROM holdfast.stream
            WHERE name = of_stream FOR UPDATE;
            IF adopted IS NULL THEN
                outcome := 'no_stream';
                RETURN;
            END IF;
            IF adopted NOT IN (proof_query, new_query) THEN
                outcome := 'other_query';
                RETURN;
            END IF;
            SELECT digest INTO found FROM holdfast.batch
            WHERE stream = of_stream AND query_id = proof_query AND batch_id = proof_batch;
            IF found IS NULL THEN
                outcome := 'no_batch';
                RETURN;
            END IF;
            IF found <> proof_digest THEN
                outcome := 'other_content';
                RETURN;
            END IF;
            SELECT digest INTO found FROM holdfast.batch
            WHERE stream = of_stream AND query_id = new_query AND batch_id = new_batch;
            IF found <> new_digest THEN
                outcome := 'taken';
                RETURN;
            END IF;
            IF found IS NOT NULL AND adopted = new_query THEN
                outcome := 'repeated';
                RETURN;
            END IF;
            IF found IS NULL THEN
                -- No run wrote it.
                INSERT INTO holdfast.batch (
                    stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
                    duplicate_count, differing_count, suppressed_count, quarantined_count,
                    digest, written_at)
                VALUES (
                    of_stream, new_query, new_batch, '00000000-0000-0000-0000-000000000000',
                    fence, 0, 0, 0, 0, 0, 0, new_digest, clock_timestamp());
            END IF;
            UPDATE holdfast.stream SET query_id = new_query, adopted_at = clock_timestamp()
            WHERE name = of_stream;
            INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
            VALUES (
                'sink', 'stream.adopt', of_stream,
                format('continues batch %s of query %s, proved by its digest %s',
                    proof_batch, proof_query, encode(proof_digest, 'hex')),
                jsonb_build_object(
                    'query_id', new_query, 'previous', adopted, 'batch_id', new_batch,
                    'proof', jsonb_build_object('query_id', proof_query, 'batch_id', proof_batch,
                        'digest', encode(proof_digest, 'hex')),
                    'login', session_user));
            outcome := 'continued';
        END $$
    """)
    op.execute(f"REVOKE EXECUTE ON FUNCTION holdfast.{SIGNATURE} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION holdfast.{SIGNATURE} TO holdfast_sink")


def downgrade() -> None:
    op.execute(f"DROP FUNCTION holdfast.{SIGNATURE}")
