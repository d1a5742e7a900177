"""The verdicts of a run and their counts. Pure."""

from dataclasses import dataclass
from typing import Any

from holdfast.dispatcher.shared.text import redact
from holdfast.dispatcher.workbench.conform.rules import Grade, Verdict


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
