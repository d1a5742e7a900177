-- Whether the lease of a replayed entry ran out: what ends it opens every day that is stored.
-- Uses ix_replay_item_leased.
SELECT EXISTS (SELECT FROM holdfast.replay_item WHERE token IS NOT NULL AND lease_until < now()) AS expired
