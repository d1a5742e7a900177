"""Runs the checks in order and returns the report."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.dispatcher.shared.text import redact
from holdfast.dispatcher.workbench.conform import checks, rules
from holdfast.dispatcher.workbench.conform.bad_input import BAD_INPUT
from holdfast.dispatcher.workbench.conform.client import Client, GaveUp
from holdfast.dispatcher.workbench.conform.kit import Kit, Plan
from holdfast.dispatcher.workbench.conform.probe import Probe
from holdfast.dispatcher.workbench.conform.rules import Grade, Rule, Verdict
from holdfast.dispatcher.workbench.conform.slow import SlowSender


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts. `stopped` is why the run ended early; None if it is complete."""

    verdicts: tuple[Verdict, ...]
    requests: int
    seconds: float
    stopped: str | None = None

    def count(self, grade: Grade) -> int:
        """Return how many verdicts have this grade."""
        return sum(verdict.grade is grade for verdict in self.verdicts)

    def rules(self, grade: Grade) -> list[str]:
        """Return the ids of the rules with this grade, in order of grading."""
        return [verdict.rule.id for verdict in self.verdicts if verdict.grade is grade]

    def passes(self, *, strict: bool) -> bool:
        """Return whether the receiver conforms; `strict` treats a warning as a failure."""
        bad = self.count(Grade.FAIL) + (self.count(Grade.WARN) if strict else 0)
        return bad == 0 and self.stopped is None

    def content(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "passed": self.count(Grade.PASS),
            "failed": self.count(Grade.FAIL),
            "warned": self.count(Grade.WARN),
            "requests": self.requests,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "rules": [
                {
                    "rule": verdict.rule.id,
                    "grade": verdict.grade.value,
                    "title": verdict.rule.title,
                    "severity": verdict.rule.severity.value,
                    "detail": redact(verdict.detail),
                    "source": verdict.rule.source,
                    "fix": verdict.rule.fix,
                }
                for verdict in self.verdicts
            ],
        }


class Unreachable(Exception):
    """The first delivery got no answer; nothing was graded."""


@dataclass(frozen=True, slots=True)
class _Check:
    run: Callable[[Kit], Awaitable[list[Verdict]]]
    rules: tuple[Rule, ...]


_SLOW = (rules.SLOW_OTHERS, rules.SLOW_CUT)
_FIRST = (rules.GOOD_APPLIED, rules.GOOD_OUTCOME)
_RAW = _Check(checks.raw, (rules.RAW_SPACED,))
_CHECKS = (
    _RAW,
    _Check(checks.duplicate, (rules.DUPLICATE_ONCE, rules.DUPLICATE_SAME)),
    _Check(checks.commit, (rules.COMMIT_FIRST,)),
    _Check(checks.concurrent, (rules.CONCURRENT_ONCE, rules.CONCURRENT_ANSWERS)),
    _Check(checks.conflict, (rules.CONFLICT_REFUSED, rules.CONFLICT_FIRST_KEPT)),
    _Check(checks.order, (rules.ORDER_GAP, rules.ORDER_STALE, rules.ORDER_STALE_AGAIN)),
    _Check(checks.bad_input, (*(case.rule for case in BAD_INPUT), rules.TRACE_NONE)),
    _Check(checks.times, (rules.TIME_WITHIN,)),
    _Check(
        checks.rotation,
        (
            rules.ROTATION_UNKNOWN_FIRST,
            rules.ROTATION_OTHER_SCHEME,
            rules.ROTATION_SPOILED,
            rules.ROTATION_SIXTEENTH,
            rules.ROTATION_SECOND,
        ),
    ),
    _Check(checks.key_forms, (rules.KEY_FORMS,)),
    _Check(checks.size, (rules.SIZE_LARGE, rules.SIZE_OVER)),
    _Check(checks.method, (rules.METHOD,)),
    _Check(
        checks.inquiry,
        (rules.INQUIRY_KNOWN, rules.INQUIRY_GUARDED, rules.INQUIRY_UNKNOWN),
    ),
    _Check(checks.kept, (rules.KEYS_KEPT,)),
    _Check(checks.window, (rules.WINDOW_ENOUGH,)),
    _Check(checks.receipts, (rules.RECEIPT_GENUINE,)),
    _Check(checks.deadline, (rules.DEADLINE,)),
)

RULES: tuple[Rule, ...] = (
    *_FIRST,
    *_SLOW,
    *(rule for check in _CHECKS for rule in check.rules),
)
"""Every rule, in order of grading."""


async def conform_to(plan: Plan, probe: Probe | None = None) -> Report:
    """Send all requests of `plan` and grade the answers.

    The first good delivery is always sent. If it is refused, little else can be graded: the report
    ends there and reports why. Raises `Unreachable` and `ProbeFailed`.
    """
    begin = time.monotonic()
    verdicts: list[Verdict] = []
    stopped: str | None = None
    async with Client(plan.url, plan.deadline_seconds, plan.ca_file) as client:
        kit = Kit(plan, client, probe)
        slow = SlowSender(kit)
        try:
            verdicts += await checks.good(kit)
            if kit.first is not None and not kit.first[1].is_success:
                reply = kit.first[1]
                if reply.status is None:
                    raise Unreachable(str(reply))
                verdicts += await checks.raw(kit)
                stopped = "a good delivery was refused, so nothing else can be graded"
            else:
                if any(plan.wants(rule) for rule in _SLOW):
                    verdicts += await slow.begin()
                for check in _CHECKS:
                    if any(plan.wants(rule) for rule in check.rules):
                        verdicts += await check.run(kit)
                if plan.wants(rules.SLOW_CUT):
                    verdicts += await slow.end()
        except GaveUp as given_up:
            stopped = str(given_up)
        finally:
            await slow.cancel()
    wanted_verdicts = tuple(each for each in verdicts if plan.wants(each.rule))
    return Report(wanted_verdicts, len(client.exchanges), time.monotonic() - begin, stopped)
