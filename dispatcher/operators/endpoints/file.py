"""The file of `holdfast endpoint apply`: endpoints in TOML, and what applying it changes. Pure.

A file defines all settings of the endpoints that it names: what it leaves out has its default. It
holds names of secrets and never a secret, and no message repeats a value that may be one.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from holdfast.dispatcher.operators.endpoints.settings import (
    DEFAULTS,
    SETTINGS,
    complete,
    name_fault,
)
from holdfast.dispatcher.shared.errors import ParameterError
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import EndpointState

Settings = dict[str, Any]
"""The columns of an endpoint that a person may set, `name` among them."""

_ELSEWHERE = {
    "state": "`holdfast endpoint pause`, `resume` and `disable` change that, not a file",
    "name": "the name is in the table's header, [endpoint.NAME]",
    "from_beginning": "an endpoint of a file gets decisions from its addition on; for stored ones"
    " use `holdfast endpoint add --from-beginning`",
    "secret": "a file names where a secret is (secret_refs), and never holds one",
    "secrets": "a file names where a secret is (secret_refs), and never holds one",
}


class EndpointFileError(ValueError):
    """The file is not valid; the message says where and why."""


def parse(text: str) -> dict[str, Settings]:
    """Return the endpoints of a file by name, each with every setting.

    Raises `EndpointFileError`.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise EndpointFileError(f"it is not valid TOML: {error}") from None
    for name in content:
        if name != "endpoint":
            raise EndpointFileError(
                f"{name!a} is not a table of this file; an endpoint is [endpoint.NAME]"
            )
    tables = content.get("endpoint", {})
    if not isinstance(tables, dict) or not tables:
        raise EndpointFileError("it names no endpoint; one begins with [endpoint.NAME]")
    return {name: _endpoint(name, table) for name, table in tables.items()}


def _endpoint(name: str, table: object) -> Settings:
    if fault := name_fault(name):
        raise EndpointFileError(fault)
    where = f"[endpoint.{name}]"
    if not isinstance(table, dict):
        raise EndpointFileError(f"{where} is not a table")
    values: Settings = {}
    for key, value in table.items():
        if key not in SETTINGS:
            raise EndpointFileError(f"{where}: {_unknown(key, value)}")
        try:
            values[key] = SETTINGS[key].check(value)
        except ParameterError as error:
            raise EndpointFileError(f"{where}: {key} {error}") from None
    required = [each.column for each in SETTINGS.values() if each.required]
    if missing := [key for key in required if key not in values]:
        raise EndpointFileError(f"{where} has no {' and no '.join(missing)}")
    values = {**DEFAULTS, **values}
    settings = {"name": name, **{key: values[key] for key in SETTINGS}}
    try:
        return complete(settings)
    except ParameterError as error:
        raise EndpointFileError(f"{where}: {error}") from None


def _unknown(key: str, value: object) -> str:
    if key in _ELSEWHERE:
        return f"{key} is not a setting of a file: {_ELSEWHERE[key]}"
    shown = ascii(key)
    if isinstance(value, dict):
        return f'{shown} is a table; a name with a dot is quoted, as in [endpoint."payouts.eu"]'
    nearest = get_close_matches(key, SETTINGS, 1, 0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(SETTINGS)}"
    return f"{shown} is not a setting; {hint}"


Row = Mapping[str, Any]


class Action(StrEnum):
    """What applying the file does to an endpoint."""

    ADD = "add"
    CHANGE = "change"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Step:
    """One endpoint of the file. `before` and `after` hold the columns that differ."""

    name: str
    action: Action
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    blocked: str | None
    """What must be done first; None when it can be applied now."""


def plan(wanted: Mapping[str, Settings], rows: Mapping[str, Row]) -> list[Step]:
    """Return a step for each endpoint of the file, by name.

    `rows` are the endpoints of the database: their settings, `state` and `leased_lanes`.
    """
    return [_step(name, wanted[name], rows.get(name)) for name in sorted(wanted)]


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
        _blocked(name, row) if {"types", "streams"} & {*different} else None,
    )


def _blocked(name: str, row: Row) -> str | None:
    """Return why types and streams cannot be changed now, or None."""
    if row["state"] == EndpointState.ACTIVE:
        return (
            "its types and streams can only be changed while it is paused: holdfast endpoint pause"
            f" {name} --reason TEXT, apply, then resume it; nothing is lost in between"
        )
    if row["leased_lanes"]:
        leased = counted(row["leased_lanes"], "subject")
        return f"requests of {leased} are still in flight: wait a moment"
    return None


def _same(column: str, one: Any, other: Any) -> bool:
    if column == "allow_cidrs":  # a set, and the database may format a network differently
        return _networks(one) == _networks(other)
    return bool(one == other)


def _networks(cidrs: list[str]) -> set[object]:
    return {ipaddress.ip_network(str(cidr)) for cidr in cidrs}
