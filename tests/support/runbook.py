"""A page of the runbook as a person follows it: its commands in order, and what it says of each.

    ```sh
    holdfast status
    ```
    Exit 4, shows: `1 dead letter`.

What stands in `<ANGLES>` the person knows, or finds in what was shown before. "Again until exit"
stands for a command that is given until it says so. A line that begins with "Elsewhere:" is done by
somebody else: the test does it.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command import holdfast
from tests.support.waiting import eventually

PAGES = Path(__file__).parents[2] / "deploy" / "runbook"

AGAIN_SECONDS = 60.0

_PLACE = re.compile(r"<([A-Z_]+)>")
_EXPECTED = re.compile(r"(Exit|Again until exit) (\d)(?:, shows: (`[^`]+`(?:, `[^`]+`)*))?\.")
_ELSEWHERE = re.compile(r"Elsewhere: \*\*(.+?)\.\*\*.*")
_SHELL = re.compile(r"[|>$;&\n]")


@dataclass(frozen=True)
class Step:
    """A command with what must come of it; or, with a code of None, what somebody else does."""

    line: int
    text: str
    code: int | None = None
    shows: tuple[str, ...] = ()
    again: bool = False

    @property
    def places(self) -> list[str]:
        """The names in angles."""
        return _PLACE.findall(self.text)


def steps(page: str) -> list[Step]:
    """Read a page; raises ValueError for a command without a line that says what comes of it."""
    results: list[Step] = []
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        if lines[at] == "```sh":
            end = lines.index("```", at)
            expected = _EXPECTED.match(lines[end + 1]) if end + 1 < len(lines) else None
            if expected is None:
                raise ValueError(f"line {end + 2}: nothing says what comes of the command")
            again, code, shows = expected.groups()
            results.append(
                Step(
                    *(at + 2, "\n".join(lines[at + 1 : end]), int(code)),
                    tuple(re.findall(r"`([^`]+)`", shows or "")),
                    again != "Exit",
                )
            )
            at = end
        elif (elsewhere := _ELSEWHERE.match(lines[at])) is not None:
            results.append(Step(at + 1, elsewhere[1]))
        at += 1
    return results


@contextmanager
def refused_as(page: str, kind: type[Exception]) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of the job that has every word by which the page tells it."""
    with pytest.raises(kind) as refusal:
        yield refusal
    [line] = re.findall(r"^The job says: (.+)\.$", (PAGES / f"{page}.md").read_text(), re.MULTILINE)
    message = f"{refusal.typename}: {refusal.value}"
    assert [words for words in re.findall(r"`([^`]+)`", line) if words not in message] == []


@dataclass
class Reader:
    """Somebody who follows pages on one database.

    `known` is what the person knows, by its name in angles; `finds` are the patterns of what is
    found in what was shown, the newest first.
    """

    dsn: str
    environment: Mapping[str, str]
    known: dict[str, str]
    finds: Mapping[str, str] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def follow(self, page: str, elsewhere: Mapping[str, Callable[[], object]]) -> None:
        """Do what a page of this name says, from its top to its end."""
        path = PAGES / f"{page}.md"
        done: list[str] = []
        for step in steps(path.read_text()):
            if step.code is None:
                elsewhere[step.text]()
                done.append(step.text)
            else:
                self.give(path.name, step)
        assert done == list(elsewhere)

    def give(self, page: str, step: Step) -> None:
        """Give one command; fails with what was shown where it is not what the page says."""
        command = _PLACE.sub(lambda place: self._known(place[1]), step.text)
        message = f"{page}:{step.line}: {command}\n"

        def differs() -> str:
            done = self._run(command)
            text = done.stdout + done.stderr
            self.shown.append(text)
            flat = " ".join(text.split())
            missing = [words for words in step.shows if words not in flat]
            if done.returncode == step.code and not missing:
                return ""
            return f"{message}exit {done.returncode}, not {step.code}; not shown: {missing}\n{text}"

        if step.again:
            with suppress(AssertionError):  # the next line says what was shown
                eventually(lambda: not differs(), AGAIN_SECONDS)
        difference = differs()
        assert not difference, difference

    def _known(self, name: str) -> str:
        if name not in self.known:
            results = [match for text in self.shown for match in re.findall(self.finds[name], text)]
            assert results, f"<{name}> was not shown"
            self.known[name] = results[-1]
        return self.known[name]

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command)
        if words[0] == "holdfast" and not _SHELL.search(command.replace("\\\n", "")):
            return holdfast(*words[1:], dsn=self.dsn, environment=self.environment)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self.environment, "HOLDFAST_DSN": self.dsn, "PATH": path}
        return subprocess.run(
            ["bash", "-o", "pipefail", "-ec", command],  # noqa: S607 - the shell of the reader
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
