"""The file of `holdfast endpoint apply`: endpoints in TOML, by their columns and units.

A file is the whole truth about the settings of the endpoints that it names: what it leaves out has
its default. It holds names of secrets and never a secret, and no message repeats a value that may
be one. Pure.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from dispatcher.operators.endpoints.values import CHECKS, BadValueError, name_fault

Settings = dict[str, Any]
"""The columns of an endpoint that a person may set, `name` among them."""

KEYS = tuple(CHECKS)
REQUIRED = ("url", "secret_refs")

_ELSEWHERE = {
    "state": "`holdfast endpoint pause`, `resume` and `disable` change that, not a file",
    "name": "the name stands in the head of the table, [endpoint.NAME]",
    "from_beginning": "an endpoint of a file begins with what is decided after it was added; for"
    " what is stored already use `holdfast endpoint add --from-beginning`",
    "secret": "a file names where a secret is (secret_refs), and never holds one",
    "secrets": "a file names where a secret is (secret_refs), and never holds one",
}


class EndpointFileError(ValueError):
    """The file says something that no endpoint can have; the message says where and what."""


def parse(text: str, defaults: Mapping[str, Any]) -> dict[str, Settings]:
    """Return the endpoints of a file by name, each with every setting; `defaults` fill it up.

    Raises `EndpointFileError`.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise EndpointFileError(f"it is no TOML: {error}") from None
    for name in content:
        if name != "endpoint":
            raise EndpointFileError(f"{name!a} is no table of it; an endpoint is [endpoint.NAME]")
    tables = content.get("endpoint", {})
    if not isinstance(tables, dict) or not tables:
        raise EndpointFileError("it names no endpoint; one begins with [endpoint.NAME]")
    return {name: _endpoint(name, table, defaults) for name, table in tables.items()}


def _endpoint(name: str, table: object, defaults: Mapping[str, Any]) -> Settings:
    if fault := name_fault(name):
        raise EndpointFileError(fault)
    where = f"[endpoint.{name}]"
    if not isinstance(table, dict):
        raise EndpointFileError(f"{where} is no table")
    found: Settings = {}
    for key, value in table.items():
        check = CHECKS.get(key)
        if check is None:
            raise EndpointFileError(f"{where}: {_unknown(key, value)}")
        try:
            found[key] = check(value)
        except BadValueError as error:
            raise EndpointFileError(f"{where}: {key} {error}") from None
    if missing := [key for key in REQUIRED if key not in found]:
        raise EndpointFileError(f"{where} has no {' and no '.join(missing)}")
    whole = {**defaults, **found}
    settings = {"name": name, **{key: whole[key] for key in KEYS}}
    # As `endpoint add` does: connecting takes no longer than the whole.
    connect, total = settings["connect_timeout_ms"], settings["total_timeout_ms"]
    return {**settings, "connect_timeout_ms": min(connect, total)}


def _unknown(key: str, value: object) -> str:
    if key in _ELSEWHERE:
        return f"{key} is no setting of a file: {_ELSEWHERE[key]}"
    shown = ascii(key)
    if isinstance(value, dict):
        return f'{shown} is a table; a name with a dot is quoted, as in [endpoint."payouts.eu"]'
    nearest = get_close_matches(key, KEYS, 1, 0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(KEYS)}"
    return f"{shown} is no setting; {hint}"
