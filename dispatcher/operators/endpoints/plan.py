"""What `holdfast endpoint apply` would do: wanted settings against those that are there. Pure."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dispatcher.operators.endpoints.file import Settings
from sink.contract.states import EndpointState

Row = Mapping[str, Any]


class Action(StrEnum):
    """What happens to an endpoint."""

    ADD = "add"
    CHANGE = "change"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Step:
    """One endpoint of the file. `before` and `after` hold what is different, by column."""

    name: str
    action: Action
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    blocked: str | None
    """What has to be done first; None where it can be applied now."""


def plan(wanted: Mapping[str, Settings], there: Mapping[str, Row]) -> list[Step]:
    """Return a step for each wanted endpoint, by name.

    `there` has the endpoints of the database: their settings, `state` and `leased_lanes`.
    """
    return [_step(name, wanted[name], there.get(name)) for name in sorted(wanted)]


def _step(name: str, wanted: Settings, row: Row | None) -> Step:
    if row is None:
        after = {column: value for column, value in wanted.items() if column != "name"}
        return Step(name, Action.ADD, {}, after, None)
    different = [column for column in wanted if not _same(column, row[column], wanted[column])]
    return Step(
        name,
        Action.CHANGE if different else Action.NOTHING,
        {column: row[column] for column in different},
        {column: wanted[column] for column in different},
        _blocked(name, row) if "types" in different else None,
    )


def _blocked(name: str, row: Row) -> str | None:
    """Return why its types cannot be changed now."""
    if row["state"] == EndpointState.ACTIVE:
        return (
            f"its types are changed while it is paused: holdfast endpoint pause {name} --reason"
            " TEXT, apply, then resume it; nothing is lost in between"
        )
    if row["leased_lanes"]:
        return f"requests of {row['leased_lanes']} subjects are still under way: wait a moment"
    return None


def _same(column: str, one: Any, other: Any) -> bool:
    if column == "allow_cidrs":  # a set, which the database may write in another form
        return _networks(one) == _networks(other)
    return bool(one == other)


def _networks(cidrs: list[str]) -> set[object]:
    return {ipaddress.ip_network(str(cidr)) for cidr in cidrs}
