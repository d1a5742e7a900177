-- Whether the lease of a replayed entry ended. A separate statement: the rescue itself opens every stored day.
-- Uses ix_replay_item_leased.
SELECT EXISTS (SELECT FROM holdfast.replay_item WHERE token IS NOT NULL AND lease_until < now()) AS expired
