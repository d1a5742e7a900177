-- Adopts another query id for a stream, if the ledger has the batch that the new checkpoint continues; `outcome` says what came
-- of it. Index: pk_stream, pk_batch.
SELECT outcome, adopted
FROM holdfast.continue_stream(
    %(stream)s, %(proof_query)s, %(proof_batch)s, %(proof_digest)s, %(query_id)s, %(batch_id)s)
