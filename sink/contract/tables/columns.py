"""Building blocks of the tables: metadata, enum types, and columns as the revisions write them."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    text,
)
from sqlalchemy.dialects.postgresql import ENUM, TIMESTAMP

from holdfast.sink.contract import states
from holdfast.sink.contract.compatibility import StrEnum

SCHEMA = "holdfast"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    },
)

ENUMS: dict[str, type[StrEnum]] = {
    "outcome": states.Outcome,
    "endpoint_state": states.EndpointState,
    "order_policy": states.OrderPolicy,
    "envelope_style": states.EnvelopeStyle,
    "breaker_state": states.BreakerState,
    "dead_reason": states.DeadReason,
    "dead_resolution": states.DeadResolution,
    "quarantine_reason": states.QuarantineReason,
    "quarantine_resolution": states.QuarantineResolution,
    "suppressed_cause": states.SuppressedCause,
    "access_role": states.AccessRole,
    "divergence_side": states.DivergenceSide,
    "late_reason": states.LateReason,
    "replay_verb": states.ReplayVerb,
    "replay_state": states.ReplayState,
    "replay_kind": states.ReplayKind,
}
"""Each enum type of the database and the Python enum with the same labels in the same order."""

TIME = TIMESTAMP(timezone=True)
NAME_RULE = "name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'"


def enum(name: str) -> ENUM:
    labels = [member.value for member in ENUMS[name]]
    return ENUM(*labels, name=name, metadata=metadata, schema=SCHEMA)


def now(name: str) -> Column[Any]:
    return Column(name, TIME, nullable=False, server_default=text("now()"))


def needed(name: str, type_: Any, default: str | None = None) -> Column[Any]:
    return Column(name, type_, nullable=False, server_default=default and text(default))


def every(type_: Any, *names: str) -> list[Column[Any]]:
    return [needed(name, type_) for name in names]


def identity(type_: Any = BigInteger) -> Column[Any]:
    return Column("id", type_, Identity(always=True), primary_key=True)


def reference(name: str, type_: Any, target: str) -> Column[Any]:
    return Column(name, type_, ForeignKey(f"{SCHEMA}.{target}"), nullable=False)


def check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(text(rule), name=name)


def brin(name: str, column: str) -> Index:
    return Index(name, column, postgresql_using="brin", postgresql_with={"pages_per_range": 16})
