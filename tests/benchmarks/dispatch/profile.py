"""Where the dispatcher's time goes under load: a table by part, and a flame graph.

    python -m tests.benchmarks.dispatch.profile [--jobs N]

It needs py-spy, which looks at a process from outside: `pip install py-spy`. A sample counts for
the innermost function of the dispatcher that it is in, with all that this function called; samples
of an idle loop do not count.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import CASES
from tests.benchmarks.dispatch.programs import Receiver, Work, receiver, working
from tests.benchmarks.dispatch.shapes import SHAPES
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.sink.server import server
from tests.support.waiting import eventually

FOLDER = Path(".holdfast/bench")
PY_SPY = "py-spy"
SAMPLES_A_SECOND = 500
SECONDS = 3
"""Of each of the two recordings, one for the table and one for the picture."""

PARTS: tuple[tuple[str, str], ...] = (
    ("dispatcher/outbound/signing.py", "sign"),
    ("dispatcher/outbound/request.py", "compose the request"),
    ("dispatcher/outbound/transport/channel.py", "compose the request"),
    ("dispatcher/outbound/transport/kernel.py", "ask the kernel whether all is sent"),
    ("dispatcher/outbound/", "write, wait for the answer, parse it"),
    ("dispatcher/delivery/store/", "claim and settle in Postgres"),
    ("dispatcher/delivery/settler.py", "claim and settle in Postgres"),
    ("dispatcher/delivery/rules/", "decide"),
    ("dispatcher/delivery/telemetry/", "metrics, log, trace"),
    ("dispatcher/", "lanes and attempts"),
)
"""The part of the innermost frame whose file begins so; the first that fits."""

LOOP = "the event loop by itself"


def part_of(stack: str) -> str:
    """Return the part that a sample counts for; frames are `function (file:line)`, `;` between."""
    for frame in reversed(stack.split(";")):
        for begins, part in PARTS:
            if f"({begins}" in frame:
                return part
    return LOOP


def shares(lines: Iterable[str]) -> dict[str, float]:
    """Return each part's share of the samples of py-spy's raw format, the largest first."""
    counted: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        counted[part_of(stack)] += int(count)
    return {part: count / counted.total() for part, count in counted.most_common()}


def main() -> None:
    """Load a dispatcher, record it twice, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    count = parser.parse_args().jobs
    if shutil.which(PY_SPY) is None:
        sys.exit("py-spy is not found: `pip install py-spy`, and run this again")
    sizes = replace(Sizes.full(), jobs=count)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as path,
        server(Path(path)) as running,
        fresh(running.dsn) as dsn,
        receiver() as to,
    ):
        jobs.add_endpoint(dsn, sizes.connections, sizes.days)
        subjects = SHAPES["shuffled"].subjects(sizes, count)
        jobs.write(dsn, subjects, SHAPES["shuffled"].ours)
        with working(CASES["holdfast"], dsn, to, sizes.connections, Path(path)) as work:
            _show(*_recorded(work, to, count))


def _recorded(work: Work, to: Receiver, count: int) -> tuple[dict[str, float], float]:
    """Record the table's samples, then the picture; return shares and microseconds a delivery."""
    raw = FOLDER / "dispatch-profile.txt"
    eventually(lambda: to.figures()["distinct"] > count // 20)
    before, used = to.figures()["distinct"], work.used_s()
    _record(work.process.pid, "raw", raw)
    # Taken while the recorder looks, which costs the dispatcher little: it is not stopped for it.
    each_us = (work.used_s() - used) / (to.figures()["distinct"] - before) * 1e6
    _record(work.process.pid, "flamegraph", FOLDER / "dispatch-profile.svg")
    if to.figures()["distinct"] >= count:
        sys.exit(f"all {count:,} jobs were delivered before the recordings ended: take more --jobs")
    return shares(raw.read_text().splitlines()), each_us


def _record(pid: int, kind: str, to: Path) -> None:
    words = [PY_SPY, "record", "--nonblocking", "--pid", str(pid), "--format", kind]
    words += ["--output", str(to), "--duration", str(SECONDS), "--rate", str(SAMPLES_A_SECOND)]
    subprocess.run(words, check=True, capture_output=True)


def _show(found: dict[str, float], each_us: float) -> None:
    print(
        table(
            f"Where the {each_us:.0f} µs of a processor for one delivery go",
            ("part", "share", "µs"),
            [(part, f"{share:.0%}", f"{share * each_us:.1f}") for part, share in found.items()],
        )
    )
    print(f"\nflame graph: {FOLDER / 'dispatch-profile.svg'}")


if __name__ == "__main__":
    main()
