"""What an installation brings: packages, megabytes, import milliseconds.

Each environment gets a wheel of this tree, or of an older commit, with the extras that its part
needs. No environment has pyspark: the sink takes the user's own. `nothing` starts Python alone, and
`its libraries` imports what every sink of this kind needs; the other programs compare with both.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.benchmarks.common.runner import Bench, Run, main
from tests.benchmarks.common.trees import Missing, Tree

UV: Final = (str(Path(sys.executable).with_name("uv")), "--quiet")
SINK, MIGRATIONS, RECEIVER = "sink", "migrations", "receiver"
PROGRAMS: Final = {
    "nothing": "pass",
    "its libraries": "import psycopg, pyarrow",
    "holdfast.sink": "import holdfast.sink",
    "OutboxSink": "from holdfast.sink import OutboxSink",
}
INVENTORY: Final = """
import json, pathlib, sysconfig
from importlib.metadata import distributions
site = pathlib.Path(sysconfig.get_path("purelib"))
print(json.dumps({
    "packages": sorted(each.metadata["Name"] for each in distributions()),
    "MB": sum(each.stat().st_size for each in site.rglob("*") if each.is_file()) / 1e6,
}))
"""


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rounds: int = 15
    """How often each program is started."""
    quick: ClassVar = {"rounds": 3}


def installed(bench: Bench[Sizes]) -> None:
    """Each extra of each tree in an environment of its own."""
    rows = []
    for tree in bench.trees:
        for extra in (SINK, MIGRATIONS, RECEIVER):
            found = json.loads(_output(_environment(bench, tree, extra), INVENTORY))
            packages = [name for name in found["packages"] if name != "holdfast"]
            name, size = f"{extra}{tree.suffix}", round(found["MB"])
            bench.say(f"{name}: {', '.join(packages)}")
            rows.append({"case": name, "packages": len(packages), "MB": size})
    bench.table("What pip installs", rows)


def imports(bench: Bench[Sizes]) -> None:
    """Each program in the environment of the sink, the trees in turns."""
    cases = {
        f"{name}{tree.suffix}": _program(str(_environment(bench, tree, SINK)), program)
        for name, program in PROGRAMS.items()
        for tree in bench.trees
    }
    bench.compare("From the start of Python", cases, bench.size.rounds, by="ms", warm=1)


def _program(python: str, program: str) -> Any:
    def run() -> Run:
        began = time.perf_counter()
        done = subprocess.run(
            [python, "-c", program], cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(done.stderr.strip().splitlines()[-1])
        return {"ms": (time.perf_counter() - began) * 1e3}

    return run


def _environment(bench: Bench[Sizes], tree: Tree, extra: str) -> Path:
    """Return the Python of the environment, which it makes at the first call."""
    folder = bench.folder / f"{extra}{tree.suffix}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([*UV, "venv", "--python", sys.executable, str(folder)], check=True)
        wanted = f"holdfast[{extra}] @ {tree.root.resolve().as_uri()}"
        subprocess.run(
            [*UV, "pip", "install", "--compile-bytecode", "--python", str(python), wanted],
            check=True,
        )
    return python


def _output(python: Path, program: str) -> str:
    return subprocess.run(
        [str(python), "-c", program], cwd="/", check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main("install", Sizes, {"installed": installed, "imports": imports}, about=__doc__ or "")
