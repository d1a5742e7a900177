"""What a step of the check found."""

from dataclasses import dataclass, field


@dataclass
class Report:
    """Faults fail the check; what was left out, each with its reason, makes it degraded."""

    faults: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        """One word for the step."""
        return "FAILED" if self.faults else "degraded" if self.left_out else "ok"
