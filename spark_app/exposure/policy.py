"""The limits and the currency of a merchant at a window's end.

The newest entry whose `effective_from` is not after the window's end is in force; a merchant's own
entries come before the default. A decision depends on the window's end and never on the time at
which it is computed, so a replay has the same limits.

A stream may continue under another policy, as long as no past decision changes
(`require_unchanged`). The version that a window records is the one that was in force when its end
was reached.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure import policy_file
from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy_file import Limits, PolicyFile
from holdfast.spark_app.exposure.schema import NEVER, Bools, Int64s


class VersionPeriod(NamedTuple):
    """The period in which windows record a version of the policy."""

    since_us: int
    """Windows that end after this time; NEVER for the first version."""
    version: str


@dataclass(frozen=True)
class Policy:
    """A checked policy. Holds plain values only, so that Spark can pickle it for its workers."""

    file: PolicyFile
    text: str = field(default="", repr=False)
    """The TOML that it was read from."""
    periods: tuple[VersionPeriod, ...] = ()
    """Ascending, this version last; empty where it is the only one."""

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a policy file; raises PolicyError, naming the path."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8"))
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path}: The policy cannot be read: {error}.") from error

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a policy from TOML; raises PolicyError."""
        return cls(policy_file.read(text), text)

    def after(self, periods: Sequence[VersionPeriod]) -> Self:
        """Return this policy as the successor of others; `periods` ascends, its own is the last."""
        return replace(self, periods=tuple(periods))

    @property
    def version(self) -> str:
        return self.file.version

    @property
    def first_version(self) -> str:
        """The version that set what later ones may not change: currencies, and the first start."""
        return self.periods[0].version if self.periods else self.version

    def versions_at(self, window_ends: Int64s) -> pa.Array:
        """Return the version that windows with these ends (microseconds) record."""
        periods = self.periods or (VersionPeriod(NEVER, self.version),)
        since = np.array([period.since_us for period in periods], np.int64)
        place = np.maximum(np.searchsorted(since, window_ends, side="left") - 1, 0)
        return pa.array([period.version for period in periods], pa.string()).take(pa.array(place))

    def currency(self, merchant_id: str) -> str:
        """Return the currency in which a merchant settles."""
        return self.file.currencies.get(merchant_id, self.file.currency)

    def in_force(self, merchant_id: str, window_end_us: int) -> Limits:
        """Return the limits of one merchant at one window's end (microseconds); see `limits`."""
        limit, release_level = self.limits(
            pa.array([merchant_id], pa.string()), np.array([window_end_us], np.int64)
        )
        return Limits(int(limit[0]), int(release_level[0]))

    def limits(self, merchant_ids: pa.Array, window_ends: Int64s) -> tuple[Int64s, Int64s]:
        """Return `limit_minor` and `release_level_minor` for arrays of merchants and window ends.

        Raises PolicyError when a window ends before the first default is in force.
        """
        entry = self._entries(merchant_ids, window_ends)
        if (entry < 0).any():
            moment = rfc3339_from_micros(int(window_ends[entry < 0].min()))
            raise PolicyError(
                f"Policy {self.version} has no default in force for the window that ends at "
                f"{moment}. Nothing was decided; add a [[default]] without effective_from and "
                "start again."
            )
        return self._table.limit[entry], self._table.release_level[entry]

    def covers(self, merchant_ids: pa.Array, window_ends: Int64s) -> Bools:
        """Return whether limits are in force; once in force for a merchant, they always are."""
        return self._entries(merchant_ids, window_ends) >= 0

    def currencies(self, merchant_ids: pa.Array) -> pa.Array:
        """Return the settlement currency of each merchant of an array."""
        named = self.file.currencies
        if not named:
            return pa.repeat(self.file.currency, len(merchant_ids))
        keys, values = pa.array(named.keys(), pa.string()), pa.array(named.values(), pa.string())
        currencies = values.take(pc.index_in(merchant_ids, value_set=keys))
        return pc.fill_null(currencies, self.file.currency)

    def _entries(self, merchant_ids: pa.Array, window_ends: Int64s) -> Int64s:
        """Return the position of the entry in force, a merchant's own first; -1 for none."""
        table = self._table
        own = table.find(_places(merchant_ids, table.merchants), window_ends)
        if not (own < 0).any():
            return own
        default = np.full(len(window_ends), len(table.merchants))
        return np.where(own < 0, table.find(default, window_ends), own)

    @cached_property
    def _table(self) -> "_Table":
        return _Table.of(self.file)


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """The entries as arrays, ordered by owner and then by time; the default is the last owner."""

    merchants: pa.Array
    starts: Int64s
    """Every distinct `effective_from`, ascending."""
    key: Int64s
    """Per entry `owner * (len(starts) + 1) + starts up to and including its own`: ascending."""
    owner: Int64s
    limit: Int64s
    release_level: Int64s

    @classmethod
    def of(cls, file: PolicyFile) -> "_Table":
        names = sorted({e.merchant_id for e in file.entries if e.merchant_id is not None})
        place: dict[str | None, int] = {name: position for position, name in enumerate(names)}
        place[None] = len(names)
        entries = sorted(file.entries, key=lambda e: (place[e.merchant_id], e.effective_from_us))
        owner = np.array([place[e.merchant_id] for e in entries], np.int64)
        since = np.array([e.effective_from_us for e in entries], np.int64)
        starts = np.unique(since)
        return cls(
            merchants=pa.array(names, pa.string()),
            starts=starts,
            key=owner * (len(starts) + 1) + np.searchsorted(starts, since, side="right"),
            owner=owner,
            limit=np.array([e.limits.limit_minor for e in entries], np.int64),
            release_level=np.array([e.limits.release_level_minor for e in entries], np.int64),
        )

    def find(self, owner: Int64s, moment: Int64s) -> Int64s:
        """Return the position of the owner's newest entry in force at a time, or -1."""
        bounds = owner * (len(self.starts) + 1) + np.searchsorted(self.starts, moment, "right")
        position = np.searchsorted(self.key, bounds, side="right") - 1
        mine = (position >= 0) & (self.owner[position] == owner)
        return np.where(mine, position, -1)


def _places(merchant_ids: pa.Array, merchants: pa.Array) -> Int64s:
    """Return the position of each id in a list of ids; -1 for a missing one."""
    positions = pc.fill_null(pc.index_in(merchant_ids, value_set=merchants), -1)
    places: Int64s = positions.to_numpy().astype(np.int64)
    return places


# Whether a stream may continue under another policy: no past decision may change.
#
# Windows that end up to the newest planned watermark are decided, or a replayed batch will decide
# them. Their limits must be the same under both policies. Currencies, and the first time at which
# any limit is in force, may never change: every event was checked against them when it arrived.

Steps = list[tuple[int, Limits]]
"""The limits in force from each time on, ascending."""

_NEW_CHECKPOINT = "start with a new checkpoint, which the stream then has to adopt"


@dataclass(frozen=True)
class _Rules:
    """The entries of a policy by their owner; None is the default."""

    file: PolicyFile
    steps: dict[str | None, Steps]

    @classmethod
    def of(cls, file: PolicyFile) -> "_Rules":
        steps: dict[str | None, Steps] = {}
        for entry in sorted(file.entries, key=lambda entry: entry.effective_from_us):
            steps.setdefault(entry.merchant_id, []).append((entry.effective_from_us, entry.limits))
        return cls(file, steps)

    @property
    def merchants(self) -> set[str]:
        return {owner for owner in self.steps if owner is not None} | self.file.currencies.keys()

    def of_owner(self, owner: str | None) -> Iterator[Steps]:
        """Yield an owner's entries, then the default's, which apply where none of its own does."""
        yield self.steps.get(owner, [])
        yield self.steps[None]

    def moments(self, owner: str | None) -> set[int]:
        return {since for steps in self.of_owner(owner) for since, _ in steps}

    def at(self, owner: str | None, moment: int) -> Limits | None:
        for steps in self.of_owner(owner):
            in_force = [limits for since, limits in steps if since <= moment]
            if in_force:
                return in_force[-1]
        return None

    def currency(self, owner: str | None) -> str:
        return (
            self.file.currency
            if owner is None
            else self.file.currencies.get(owner, self.file.currency)
        )


def same(before: PolicyFile, after: PolicyFile) -> bool:
    """Return whether two files have the same content, in any order and layout."""
    return (
        (before.version, before.currency) == (after.version, after.currency)
        and set(before.entries) == set(after.entries)
        and dict(before.currencies) == dict(after.currencies)
    )


def require_unchanged(before: PolicyFile, after: PolicyFile, decided_us: int | None) -> None:
    """Compare a policy with the one before it; `decided_us` is None where nothing is decided yet.

    Raises PolicyError with the merchant, the time, the past decision, and the remedy.
    """
    then, now = _Rules.of(before), _Rules.of(after)
    for owner in (None, *sorted(then.merchants | now.merchants)):
        _same_currency(then, now, owner)
        _same_beginning(then, now, owner)
        if decided_us is not None:
            _same_limits(then, now, owner, decided_us)


def _same_currency(then: _Rules, now: _Rules, owner: str | None) -> None:
    before, after = then.currency(owner), now.currency(owner)
    if before != after:
        raise PolicyError(
            f"Policy {now.file.version} lets {_shown(owner)} settle in {after}, but events were"
            f" checked and added up in {before} (policy {then.file.version}). Restore {before}, or"
            f" {_NEW_CHECKPOINT}."
        )


def _same_beginning(then: _Rules, now: _Rules, owner: str | None) -> None:
    before, after = min(then.moments(owner)), min(now.moments(owner))
    if before != after:
        raise PolicyError(
            f"Policy {now.file.version} has limits for {_shown(owner)} {_from(after)}, but policy"
            f" {then.file.version} had them {_from(before)}, and events were accepted or refused by"
            f" that. Let the first effective_from be as it was, or {_NEW_CHECKPOINT}."
        )


def _same_limits(then: _Rules, now: _Rules, owner: str | None, decided_us: int) -> None:
    for moment in sorted(then.moments(owner) | now.moments(owner)):
        before, after = then.at(owner, moment), now.at(owner, moment)
        if moment <= decided_us and before != after:
            decided = rfc3339_from_micros(decided_us)
            raise PolicyError(
                f"Policy {now.file.version} gives {_shown(owner)} {_amounts(after)}"
                f" {_from(moment)}, but the windows that end up to {decided} are decided already,"
                f" by policy {then.file.version} with {_amounts(before)}. Keep the entries that"
                f" were, and add one with an effective_from after {decided}."
            )


def _amounts(limits: Limits | None) -> str:
    if limits is None:
        return "no limit"
    return f"limit {limits.limit_minor} and release level {limits.release_level_minor}"


def _shown(owner: str | None) -> str:
    return "the default" if owner is None else f"merchant {json.dumps(owner, ensure_ascii=False)}"


def _from(moment: int) -> str:
    return "from the beginning" if moment == NEVER else f"from {rfc3339_from_micros(moment)} on"
