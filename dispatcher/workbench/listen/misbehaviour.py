"""Faults that `holdfast listen` injects: another status, a delay, a cut connection. Pure.

Random faults are drawn from a seed in order of arrival: the same seed gives the same faults if
deliveries arrive one at a time.
"""

import re
from dataclasses import dataclass
from random import Random

STATUS_MIN, STATUS_MAX = 200, 599
LATENCY_MS_MAX = 120_000
RETRY_AFTER_SECONDS_MAX = 86_400
FAILING_STATUS, BUSY_STATUS = 500, 503

_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_SHARE = re.compile(r"(?:0(?:\.[0-9]{1,6})?|1\.0{1,6})")
_PERCENT = re.compile(r"(?:100|[0-9]{1,2})%")


@dataclass(frozen=True, slots=True)
class Cut:
    """Which connections to cut after applying: the first `count`, or a share."""

    count: int = 0
    share: float = 0.0

    @classmethod
    def of(cls, text: str) -> "Cut":
        """Parse `3` (the first three), `0.2` or `20%` (a share); raises `ValueError`."""
        if _COUNT.fullmatch(text):
            return cls(count=int(text))
        if _SHARE.fullmatch(text):
            return cls(share=float(text))
        if _PERCENT.fullmatch(text):
            return cls(share=int(text[:-1]) / 100)
        raise ValueError("a number such as 3 (the first three), or a share such as 0.2 or 20%")


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """The configured faults. With a `status` of None, answers are correct."""

    status: int | None = None
    fail_rate: float | None = None
    latency_ms: int = 0
    cut: Cut = Cut()
    retry_after_seconds: int | None = None

    def fault(self) -> str | None:
        """Return what is wrong with these settings, or None."""
        if self.status is not None and not STATUS_MIN <= self.status <= STATUS_MAX:
            return f"--status must be {STATUS_MIN} to {STATUS_MAX}"
        if self.fail_rate is not None and not 0 <= self.fail_rate <= 1:
            return "--fail-rate must be a share from 0 to 1"
        if not 0 <= self.latency_ms <= LATENCY_MS_MAX:
            return f"--latency must be 0 to {LATENCY_MS_MAX} ms"
        if self.retry_after_seconds is None:
            return None
        if not 0 <= self.retry_after_seconds <= RETRY_AFTER_SECONDS_MAX:
            return f"--retry-after must be 0 to {RETRY_AFTER_SECONDS_MAX} s"
        if self.status is None and self.fail_rate is None:
            return "--retry-after requires --status or --fail-rate"
        return None

    @property
    def draws(self) -> bool:
        """Whether any fault is random."""
        return bool(self.fail_rate) or bool(self.cut.share)


@dataclass(frozen=True, slots=True)
class Turn:
    """The faults for one delivery."""

    status: int | None
    """The status to answer in place of the correct one. Only a 2xx applies the delivery."""
    cut: bool
    """Whether to cut the connection if the delivery is applied."""

    @property
    def applies(self) -> bool:
        """Whether the delivery reaches the inbox."""
        return self.status is None or self.status < 300


class Faults:
    """Draws the faults of each delivery in turn. Not thread-safe."""

    def __init__(self, settings: Misbehaviour, seed: int) -> None:
        self._settings = settings
        self._random = Random(seed)  # noqa: S311 - repeatable faults, not a secret
        self._cuts = settings.cut.count

    def turn(self) -> Turn:
        """Draw for the next delivery."""
        # Draw both every time, so that one setting does not shift the other's faults.
        failing, cutting = self._random.random(), self._random.random()
        settings = self._settings
        status = settings.status
        if settings.fail_rate is not None:
            usual = FAILING_STATUS if settings.retry_after_seconds is None else BUSY_STATUS
            status = (status or usual) if failing < settings.fail_rate else None
        return Turn(status, cut=self._cuts > 0 or cutting < settings.cut.share)

    def cut_made(self) -> None:
        """Count a cut connection towards the first `count`."""
        self._cuts = max(0, self._cuts - 1)
