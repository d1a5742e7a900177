"""Exit codes of the `holdfast` command, and its error."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Stable exit codes of the `holdfast` command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING_MATCHED = 3
    DEGRADED = 4


class CommandError(Exception):
    """An error for a person: the message is one line, printed without a stack trace.

    It states what happened, what was not lost, and what to do. Programs read `code`, a stable name
    of what happened, such as `unknown_endpoint`; the message may change.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED, *, code: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
