-- The action of the receivers in this folder: a row for each hold and each release, the last of a merchant in force.
CREATE TABLE payouts.hold (
    merchant_id text        NOT NULL,
    action      text        NOT NULL CHECK (action IN ('block', 'release')),
    key         text        NOT NULL,
    decided_at  timestamptz NOT NULL DEFAULT now()
);
