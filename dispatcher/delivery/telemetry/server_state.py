"""What a dispatcher exports about the Postgres server itself: snapshots, dead rows, ages, size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class TableState:
    """A table whose rows are changed in place."""

    name: str
    dead_rows: int
    """An estimate, by the server's statistics."""
    vacuum_age_seconds: float | None
    """Time since the last VACUUM; None: none since the statistics began."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server at one moment; the default is a server that was not read yet."""

    snapshot_ages: Mapping[str, int] = field(default_factory=dict)
    """Transactions since the oldest snapshot, by its holder: `holdfast`, `other`, `prepared`,
    `replication`; 0 where none is held."""
    frozen_ages: Mapping[str, int] = field(default_factory=dict)
    """Age of the server's oldest row version that is not frozen, by counter: `transaction`,
    `multixact`."""
    frozen_ages_max: Mapping[str, int] = field(default_factory=dict)
    """The age at which autovacuum freezes, even where it is off, by counter."""
    size_bytes: int | None = None
    """Size of the database; None also without the right to connect to it."""
    connections: int | None = None
    """Of all databases of the server."""
    connections_max: int | None = None
    """Without those that are reserved for administrators."""
    tables: tuple[TableState, ...] = ()


def families(state: ServerState) -> Iterator[Metric]:
    """Yield every family, without samples for what is not known."""
    for name, help_text, label, values in (
        (
            "snapshot_age_transactions",
            "Age of the oldest snapshot",
            "holder",
            state.snapshot_ages,
        ),
        (
            "frozen_age",
            "Age of the oldest row version that is not frozen",
            "counter",
            state.frozen_ages,
        ),
        ("frozen_age_max", "Age at which autovacuum freezes", "counter", state.frozen_ages_max),
        ("dead_rows", "Dead rows", "table", {each.name: each.dead_rows for each in state.tables}),
        (
            "vacuum_age_seconds",
            "Time since the last VACUUM",
            "table",
            {each.name: each.vacuum_age_seconds for each in state.tables},
        ),
        ("size_bytes", "Size of the database", None, {"": state.size_bytes}),
        ("connections", "Connections of the server, all databases", None, {"": state.connections}),
        ("connections_max", "Connections of services", None, {"": state.connections_max}),
    ):
        yield _gauge(name, help_text, label, values)


def _gauge(
    name: str, help_text: str, label: str | None, values: Mapping[str, float | None]
) -> GaugeMetricFamily:
    labels = () if label is None else (label,)
    family = GaugeMetricFamily(f"holdfast_postgres_{name}", help_text, labels=labels)
    for each, value in values.items():
        if value is not None:
            family.add_metric([each] if label else [], value)
    return family
