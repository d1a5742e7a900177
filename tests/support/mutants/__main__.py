"""Change the pure modules, and list what no test notices: `make mutants MUTANTS="address.py"`."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.examples import SHARE
from tests.support.mutants.tables import ROOT, Equivalent, Module, equivalents, modules
from tests.support.mutants.worker import Mutant

TOOL = ROOT / ".holdfast" / "mutants" / "bin" / "python"
GENERATE = Path(__file__).parent / "generate.py"

ROW = "{:<48} {:>8} {:>8} {:>9} {:>9} {:>8}\n"


@dataclass(frozen=True)
class Ran:
    """How the mutants of a module ended."""

    mutants: int
    survivors: Sequence[Equivalent]
    """What no test noticed, without a reason yet."""
    noticed: Sequence[Equivalent]
    """What has a row in equivalent.toml, and is noticed by a test or does not exist."""
    seconds: float


def run(module: Module, rows: Sequence[Equivalent], jobs: int) -> tuple[Ran, set[Equivalent]]:
    """Run the mutants of a module; returns also which rows they used."""
    begun = time.monotonic()
    made = subprocess.run(
        [TOOL, GENERATE, module.file], cwd=ROOT, capture_output=True, check=True, text=True
    )
    mutants: list[Mutant] = json.loads(made.stdout)
    with TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        work = {"file": module.file, "mutants": mutants, "tests": module.tests, "jobs": jobs}
        process = subprocess.run(
            [sys.executable, "-m", "tests.support.mutants.worker"],
            cwd=ROOT,
            env={**os.environ, SHARE: "1"},
            input=json.dumps({**work, "folder": folder}),
            capture_output=True,
            check=False,
            text=True,
        )
    ended = dict(line.split() for line in process.stdout.splitlines())
    if process.returncode or len(ended) != len(mutants):
        sys.exit(f"{module.file}: {len(ended)} of {len(mutants)} mutants ran\n{process.stderr}")
    left = {
        Equivalent(module.file, each["function"], each["before"], each["after"])
        for number, each in enumerate(mutants)
        if ended[str(number)] == "0"
    }
    known = {each for each in rows if each.file == module.file}
    ran = Ran(
        len(mutants),
        sorted(left - known, key=str),
        sorted(known - left, key=str),
        time.monotonic() - begun,
    )
    return ran, left & known


def main(arguments: Sequence[str]) -> int:
    """Run the modules whose paths contain one of the names, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="PART", help="part of a module's path; else all"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    chosen = parser.parse_args(arguments)
    rows = equivalents()
    selected = [
        each
        for each in modules()
        if not chosen.names or any(name in each.file for name in chosen.names)
    ]
    if not selected:
        parser.error("no such module in tests/mutations/modules.toml")
    write = sys.stdout.write
    write(ROW.format("module", "mutants", "noticed", "recorded", "survived", "seconds"))
    failed = False
    for module in selected:
        ran, used = run(module, rows, chosen.jobs)
        killed = ran.mutants - len(ran.survivors) - len(used)
        seconds = f"{ran.seconds:.0f}"
        write(ROW.format(module.file, ran.mutants, killed, len(used), len(ran.survivors), seconds))
        faults = [f"No test notices:\n{each.row()}" for each in ran.survivors]
        faults += [f"A test notices, or it is gone:\n{each.row()}" for each in ran.noticed]
        note = "" if module.judged or not faults else "\nNot judged yet:\n"
        write(note + "".join(f"\n{each}" for each in faults))
        sys.stdout.flush()
        failed |= module.judged and bool(faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
