"""Whether a stream may continue under another policy: no past decision may change.

Windows that end up to the newest planned watermark are decided, or a replayed batch will decide
them. Their limits must be the same under both policies. Currencies, and the first time at which any
limit is in force, may never change: every event was checked against them when it arrived.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy_file import Limits, PolicyFile
from holdfast.spark_app.exposure.schema import NEVER

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
