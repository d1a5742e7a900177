"""The operators' tables."""

from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from sink.contract.tables.columns import (
    TIME,
    check,
    enum,
    every,
    identity,
    metadata,
    needed,
    now,
    reference,
)

replay = Table(
    "replay",
    metadata,
    Column("id", UUID, primary_key=True),
    needed("verb", enum("replay_verb")),
    needed("state", enum("replay_state"), "'planned'"),
    needed("filter", JSONB),
    needed("item_count", BigInteger),
    *every(Text, "reason", "actor"),
    now("created_at"),
    Column("applied_at", TIME),
    check("filter", "filter <> '{}'::jsonb"),
    check("reason", "length(reason) BETWEEN 1 AND 2000"),
    check("item_count", "item_count >= 0"),
)

replay_item = Table(
    "replay_item",
    metadata,
    reference("replay_id", UUID, "replay.id"),
    reference("endpoint_id", Integer, "endpoint.id"),
    *every(BigInteger, "subject_id", "sequence"),
    needed("created_at", TIME),
    needed("key", UUID),
    Column("new_key", UUID),
    Column("outcome", enum("outcome")),
    Column("settled_at", TIME),
    PrimaryKeyConstraint("replay_id", "endpoint_id", "subject_id", "sequence"),
)

operator_action = Table(
    "operator_action",
    metadata,
    identity(),
    now("acted_at"),
    *every(Text, "actor", "action", "target", "reason"),
    needed("detail", JSONB, "'{}'"),
    check("reason", "length(reason) BETWEEN 1 AND 2000"),
)
