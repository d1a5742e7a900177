"""The Dockerfile passes hadolint, and what its images run is what the command offers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.deploy.check.commands import fault_of
from holdfast.deploy.check.project import Project
from holdfast.deploy.check.served import Served, health_target, served

TARGETS = ("migrate", "dispatcher", "api", "job")

ENTRY_POINTS = (["holdfast"], ["python", "-m", "holdfast.deploy.images.spark"])

USER = "10001:10001"

LINT_SECONDS = 60

_CONTINUED = re.compile(r"\\\n")
_COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)
_FROM = re.compile(r"(\S+) AS (\S+)")


@dataclass
class Stage:
    """A stage: its base, and its instructions in their order."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str | None:
        """Return the arguments of the last instruction of a name."""
        texts = [text for name, text in self.instructions if name == instruction]
        return texts[-1] if texts else None


def stages(text: str) -> tuple[dict[str, str], dict[str, Stage]]:
    """Return the arguments before the first stage with their defaults, and the stages by name."""
    arguments: dict[str, str] = {}
    by_name: dict[str, Stage] = {}
    current: Stage | None = None
    for line in _CONTINUED.sub(" ", _COMMENT.sub("", text)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM" and (match := _FROM.fullmatch(rest)) is not None:
            current = by_name[match[2]] = Stage(match[2], match[1])
        elif name == "ARG" and current is None:
            key, _, value = rest.partition("=")
            arguments[key] = value
        elif name and current is not None:
            current.instructions.append((name, rest.strip()))
    return arguments, by_name


def faults(project: Project) -> Iterator[str]:
    """Yield what is wrong with the file."""
    shown = project.shown(project.dockerfile)
    yield from _lint(project, shown)
    arguments, by_name = stages(project.dockerfile.read_text())
    for stage in by_name.values():
        base = re.sub(r"\$\{(\w+)\}", lambda name: arguments.get(name[1], ""), stage.base)
        if base not in by_name and "@sha256:" not in base:
            yield f"{shown}: {stage.name}: its base {base} has no digest"
    for target in TARGETS:
        if target not in by_name:
            yield f"{shown}: there is no target {target}"
        else:
            yield from (f"{shown}: {target}: {fault}" for fault in _target(by_name[target]))


def _lint(project: Project, shown: str) -> Iterator[str]:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        (program, "--no-color", "--format", "json", "-"),
        input=project.dockerfile.read_text(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LINT_SECONDS,
    )
    for each in json.loads(done.stdout or "[]"):
        yield f"{shown}:{each['line']}: {each['code']}: {each['message']}"


def _target(stage: Stage) -> Iterator[str]:
    if stage.last("USER") != USER:
        yield f"its user is {stage.last('USER')}, not {USER}"
    try:
        entry, words = (json.loads(stage.last(name) or "[]") for name in ("ENTRYPOINT", "CMD"))
    except ValueError:
        yield "ENTRYPOINT or CMD needs a shell: write them as lists"
        return
    if entry not in ENTRY_POINTS:
        yield f"its entry point is {entry}"
    serves = None
    if words[-1:] != ["--help"]:
        if (fault := fault_of(words)) is not None:
            yield fault
        serves = served(words)
    exposed = stage.last("EXPOSE")
    if serves is not None and exposed != str(serves.port):
        yield f"it exposes {exposed}, and the command listens on {serves.port}"
    yield from _health(stage.last("HEALTHCHECK"), serves)


def _health(text: str | None, serves: Served | None) -> Iterator[str]:
    if text is None:
        yield "it has no HEALTHCHECK; NONE says that it needs none"
    elif text != "NONE":
        question = health_target(json.loads(text.partition("CMD")[2]))
        if question is None:
            yield "its HEALTHCHECK does not run holdfast.deploy.images.health"
        elif serves is not None:
            path, port = question
            yield from (f"HEALTHCHECK {each}" for each in serves.faults(path, port))
