"""Reading a policy file: TOML in, entries out, a message for each mistake.

version = "2026-11-01"
currency = "USD"                        # optional; of every merchant that names none
[[default]]
limit_minor = 5000000
release_level_minor = 5000000
effective_from = 2026-01-01T00:00:00Z   # optional; without it: always
[[merchant]]
id = "m_482"
currency = "EUR"                        # optional; one for each merchant
limit_minor = 9000000
release_level_minor = 4000000
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.schema import NEVER

AMOUNT_MAX: Final = 10**15
"""No limit is above what one event may carry (minor units)."""

DEFAULT_CURRENCY: Final = "USD"

VERSION_CHARACTERS_MAX: Final = 256
"""The body of every decision contains the version, and has a maximum size."""

_CURRENCY = re.compile(r"[A-Z]{3}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOP = {"version", "currency", "default", "merchant"}
_LIMITS = {"limit_minor", "release_level_minor", "effective_from"}


@dataclass(frozen=True, slots=True)
class Limits:
    """`exposure > limit_minor` blocks; `exposure <= release_level_minor` ends a hold.

    0 <= release_level_minor <= limit_minor, so that an empty window always ends a hold.
    """

    limit_minor: int
    release_level_minor: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One `[[default]]` (merchant_id None) or `[[merchant]]` table."""

    merchant_id: str | None
    effective_from_us: int
    """First window end for which it is in force; NEVER for always."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The content of a valid policy file."""

    version: str
    currency: str
    entries: tuple[Entry, ...]
    currencies: Mapping[str, str]
    """Of the merchants with their own."""


def read(text: str) -> PolicyFile:
    """Parse and check a policy; raises PolicyError at the first mistake."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"The policy is not TOML: {error}.") from error
    _known(document, _TOP, "the policy")
    version = document.get("version")
    if not isinstance(version, str) or not version.strip():
        raise PolicyError('The policy needs a version: version = "2026-11-01", not empty.')
    if len(version) > VERSION_CHARACTERS_MAX or "\x00" in version:
        raise PolicyError(
            f"The policy's version has at most {VERSION_CHARACTERS_MAX} characters and no NUL:"
            " every decision contains it, and would be quarantined."
        )
    currency = _currency(document.get("currency", DEFAULT_CURRENCY), "the policy")
    entries = [
        _entry(table, None, _LIMITS, f"default entry {number}")
        for number, table in _tables(document, "default")
    ]
    if not entries:
        raise PolicyError("The policy has no [[default]]: every merchant needs a limit.")
    currencies: dict[str, str] = {}
    for number, table in _tables(document, "merchant"):
        where = f"merchant entry {number}"
        merchant = table.get("id")
        if not isinstance(merchant, str) or not merchant:
            raise PolicyError(
                f'In {where}, id must be a merchant\'s id in quotes, such as "m_482".'
            )
        where = f"{where} ({_shown(merchant)})"
        entries.append(_entry(table, merchant, _LIMITS | {"id", "currency"}, where))
        if "currency" in table:
            named = _currency(table["currency"], where)
            if currencies.setdefault(merchant, named) != named:
                raise PolicyError(
                    f"In {where}, currency is {named}, but another entry says "
                    f"{currencies[merchant]}: a merchant settles in one currency."
                )
    _refuse_repeats(entries)
    return PolicyFile(version, currency, tuple(entries), currencies)


def _tables(document: Mapping[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PolicyError(f"Write each {name} entry under its own [[{name}]], in double brackets.")
    return list(enumerate(tables, start=1))


def _entry(table: dict[str, Any], merchant: str | None, keys: set[str], where: str) -> Entry:
    _known(table, keys, where)
    limit = _amount(table, "limit_minor", where)
    release_level = _amount(table, "release_level_minor", where)
    if release_level > limit:
        raise PolicyError(
            f"In {where}, release_level_minor {release_level} is above limit_minor {limit}: "
            "one window would both block and release."
        )
    return Entry(merchant, _effective_from(table, where), Limits(limit, release_level))


def _amount(table: dict[str, Any], name: str, where: str) -> int:
    value = table.get(name)
    # In Python, true is an int; and a float or a quoted number would be ambiguous about money.
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(
            f"In {where}, {name} must be a whole number of minor units, not {_shown(value)}."
        )
    if not 0 <= value <= AMOUNT_MAX:
        raise PolicyError(f"In {where}, {name} is {value}: expected 0 to {AMOUNT_MAX}.")
    return value


def _effective_from(table: dict[str, Any], where: str) -> int:
    if "effective_from" not in table:
        return NEVER
    value = table["effective_from"]
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PolicyError(
            f"In {where}, effective_from must be a time with an offset, "
            f"such as 2026-11-01T00:00:00Z, not {_shown(value)}."
        )
    return (value - _EPOCH) // timedelta(microseconds=1)


def _currency(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise PolicyError(
            f"In {where}, currency must be three capital letters, not {_shown(value)}."
        )
    return value


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    unknown = [_shown(key) for key in sorted(table.keys() - keys)]
    if unknown:
        raise PolicyError(
            f"In {where}, {', '.join(unknown)} is not known; known are {', '.join(sorted(keys))}."
        )


def _refuse_repeats(entries: list[Entry]) -> None:
    seen: set[tuple[str | None, int]] = set()
    for entry in entries:
        start = (entry.merchant_id, entry.effective_from_us)
        if start in seen:
            who = (
                "The default"
                if entry.merchant_id is None
                else f"Merchant {_shown(entry.merchant_id)}"
            )
            since = (
                "always"
                if entry.effective_from_us == NEVER
                else f"from {rfc3339_from_micros(entry.effective_from_us)}"
            )
            raise PolicyError(f"{who} has two entries in force {since}: which one is meant?")
        seen.add(start)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "missing"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
