"""Transcripts of a page: blocks of commands with their output, at moments of one run.

A block that begins with `$ ` was taken at the end of the run; one whose first line is
`# killed at S6`, when the process had been killed there.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.documents.pages import blocks_of

_KILLED = re.compile(r"# killed at (\w+)\n")

_VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # ids of queries, runs and state files
    r'|(?<="batchTimestampMs":)\d+'
    r"|20(?!24)\d\d-\d\d-\d\dT[\d:.]+Z"  # of the run: the events are of 2024
)


@dataclass(frozen=True)
class Shown:
    """A command and its output, as a page has them."""

    command: str
    output: str


@dataclass
class Transcripts:
    """The transcripts of one page, to be compared with a run.

    `run` returns the output of a command.
    """

    page: str
    run: Callable[[str], str]
    left: dict[str, list[Shown]] = field(init=False)
    """By the failpoint of the kill, or `end`."""

    def __post_init__(self) -> None:
        self.left = defaultdict(list)
        for text in blocks_of(self.page, ""):
            killed = _KILLED.match(text)
            script = text[killed.end() :] if killed else text
            if script.startswith("$ "):
                for part in script.removeprefix("$ ").split("\n$ "):
                    command, _, output = part.partition("\n")
                    self.left[killed[1] if killed else "end"].append(Shown(command, output.strip()))

    def check(self, moment: str = "end") -> None:
        """Run the commands of a moment; fails where the page shows another output."""
        for shown in self.left.pop(moment):
            output = "\n".join(line.rstrip() for line in self.run(shown.command).splitlines())
            assert masked(output.strip()) == masked(shown.output), shown.command


def masked(text: str) -> str:
    """Return a text without what differs from run to run."""
    return _VARYING.sub("<varies>", text)
