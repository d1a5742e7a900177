"""The Markdown of the repository: its pages, and the code blocks that a reader would copy."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ, killpg
from pathlib import Path
from signal import SIGKILL

from holdfast.deploy.release.pages import pages
from tests.support.command import holdfast, runs_here

ROOT = Path(__file__).parents[3]

PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy", "tests")

COMMAND_SECONDS_MAX = 400

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"<([A-Z]+)>")
_HEREDOC = re.compile(r"<<'(\w+)'$")
_SHELL = re.compile(r"[|>$;&\n]")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """The page's path from the root."""
    language: str
    """As the fence names it; empty for a drawing or for output."""
    text: str

    @property
    def first(self) -> str:
        """The first line, by which a table names the block."""
        return self.text.partition("\n")[0]


def name_of(page: Path) -> str:
    """Return a page's path from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks() -> list[Block]:
    """Return every block of every page."""
    return [
        Block(name_of(page), language, text)
        for page in pages()
        for language, text in _FENCE.findall(page.read_text())
    ]


def blocks_of(page: str, language: str) -> list[str]:
    """Return the texts of a page's blocks in one language, in their order."""
    return [each.text for each in blocks() if (each.page, each.language) == (page, language)]


def commands(script: str) -> Iterator[str]:
    """Yield the commands of a shell block; continued lines and here-documents are one command."""
    lines = iter(script.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command += "\n" + next(lines)
        if (opened := _HEREDOC.search(line)) is not None:
            for inner in lines:
                command += "\n" + inner
                if inner == opened[1]:
                    break
        if command.strip():
            yield command


class Shell:
    """One bash for a whole page, so that what a command exports or starts is there for the next."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        path = f"{Path(sys.executable).parent}:{environ['PATH']}"
        self._said = folder / "said.txt"
        with self._said.open("w") as output:
            self._bash = subprocess.Popen(
                ["bash", "-o", "pipefail"],  # noqa: S607 - the shell of the reader
                cwd=folder,
                env={**environment, "PATH": path},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )

    def give(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command and what was said meanwhile."""
        assert self._bash.stdin is not None
        before = len(self._said.read_text())
        self._bash.stdin.write(f'{command}\necho "@@ended $?"\n')
        self._bash.stdin.flush()
        until = time.monotonic() + COMMAND_SECONDS_MAX
        while time.monotonic() < until and self._bash.poll() is None:
            output = self._said.read_text()[before:]
            if (ended := re.search(r"@@ended (\d+)\n", output)) is not None:
                return int(ended[1]), output[: ended.start()]
            time.sleep(0.01)  # of a file nobody says when it grows
        raise AssertionError(f"{command}\ndid not end: {self._said.read_text()}")

    def close(self) -> None:
        """End the shell and whatever it started."""
        assert self._bash.stdin is not None
        killpg(self._bash.pid, SIGKILL)
        self._bash.stdin.close()
        self._bash.wait()


@contextmanager
def shell(folder: Path, environment: Mapping[str, str]) -> Iterator[Shell]:
    """Yield a shell in a folder."""
    running = Shell(folder, environment)
    try:
        yield running
    finally:
        running.close()


@dataclass
class Follower:
    """Somebody who copies the shell blocks of a page, from its top to its end.

    A command may end with 0, and with 3 or 4: these say something about the data. What stands in
    `<ANGLES>` is known, or found by its pattern in what was shown before.
    """

    shell: Shell
    environment: Mapping[str, str]
    known: dict[str, str] = field(default_factory=dict)
    finds: Mapping[str, str] = field(default_factory=dict)
    replaces: Mapping[str, str] = field(default_factory=dict)
    """What stands for a text of the page here, such as for a port that may be taken."""
    in_process: bool = True
    """Whether plain `holdfast` commands run in this process, without what the shell exported."""
    shown: list[str] = field(default_factory=list)

    def follow(self, page: str, left_out: Mapping[str, str]) -> None:
        """Give the commands of every block but those whose first line is `left_out`."""
        for script in blocks_of(page, "sh"):
            if script.partition("\n")[0] not in left_out:
                for command in commands(script):
                    self.give(page, command)

    def give(self, page: str, command: str) -> None:
        """Give one command; fails with what was shown."""
        command = _PLACE.sub(lambda place: self._known(place[1]), command)
        for text, replacement in self.replaces.items():
            command = command.replace(text, replacement)
        code, said = self._run(command)
        self.shown.append(said)
        assert code in {0, 3, 4}, f"{page}: {command}\nexit {code}\n{said}"

    def _known(self, name: str) -> str:
        if name not in self.known:
            results = [match for text in self.shown for match in re.findall(self.finds[name], text)]
            assert results, f"<{name}> was not shown"
            return str(results[-1])
        return self.known[name]

    def _run(self, command: str) -> tuple[int, str]:
        plain = command.replace("\\\n", "").partition(" #")[0]
        if self.in_process and not _SHELL.search(plain):
            words = shlex.split(plain)
            if words[0] == "holdfast" and runs_here(words[1]):
                done = holdfast(*words[1:], environment=self.environment)
                return done.returncode, done.stdout + done.stderr
        return self.shell.give(command)
