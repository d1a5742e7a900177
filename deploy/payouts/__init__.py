"""A small real payouts service: applies signed payout holds to its own Postgres tables."""
