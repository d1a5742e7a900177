"""What a receiver is graded by, and the grades."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    MUST = "must"
    """Money moves twice, is lost, or moves for somebody else where this is not kept."""
    SHOULD = "should"
    """It works without, and is safer with it."""


class Grade(StrEnum):
    PASS = "pass"  # noqa: S105 - a grade, no password
    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a receiver does, where that is written, and what to do if it does not."""

    id: str
    """`group.name`; stable, so that a report can be compared with an older one."""
    title: str
    severity: Severity
    source: str
    fix: str

    def passed(self, detail: str) -> "Verdict":
        return Verdict(self, Grade.PASS, detail)

    def failed(self, detail: str) -> "Verdict":
        return Verdict(self, Grade.FAIL, detail)

    def warned(self, detail: str) -> "Verdict":
        """Warn: not kept and only a `should`, or not to be judged from outside."""
        return Verdict(self, Grade.WARN, detail)

    def violated(self, detail: str) -> "Verdict":
        """Fail where the rule is a `must`, else warn."""
        return self.failed(detail) if self.severity is Severity.MUST else self.warned(detail)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a receiver kept one rule. `detail` may hold text of the receiver: show it escaped."""

    rule: Rule
    grade: Grade
    detail: str
