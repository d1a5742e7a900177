"""The result of a command that examines something: one named check a line."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.sink.contract.compatibility import StrEnum
from holdfast.sink.contract.exits import ExitCode


class Level(StrEnum):
    """How grave the result of a check is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `advice` is empty when no action is needed."""

    name: str
    level: Level
    detail: str
    advice: str = ""


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """Return 1 when a check failed, else 4 when one warned, else 0."""
    levels = {check.level for check in checks}
    if Level.FAIL in levels:
        return ExitCode.FAILED
    return ExitCode.DEGRADED if Level.WARN in levels else ExitCode.OK
