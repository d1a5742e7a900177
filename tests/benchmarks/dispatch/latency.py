"""The latency from the commit of a job to its arrival at the receiver, on an idle system."""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from holdfast.sink.transaction.database import statement
from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.runs import Missing
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.cases import CASES, Case
from tests.benchmarks.dispatch.peers_installed import command
from tests.benchmarks.dispatch.programs import Receiver, peers, receiver, working
from tests.benchmarks.dispatch.rounds import empty
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.sink.server import Server
from tests.support.waiting import eventually

SETTLE_S = 2.0
"""How long everything is idle before the first job."""


def measure(names: Sequence[str], sizes: Sizes, server: Server) -> dict[str, Any]:
    """Return milliseconds by case, and `missing` with reasons."""
    found: dict[str, Any] = {"missing": {}}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as path:
        folder = Path(path)
        subjects = list(range(sizes.trickled))
        with fresh(server.dsn) as dsn:
            jobs.write(dsn, subjects, len(subjects))
            jobs.export(dsn, subjects, folder / "jobs.jsonl")
        for name in names:
            try:
                found[name] = _case(CASES[name], sizes, server, folder)
            except Missing as reason:
                found["missing"][name] = str(reason)
                print(f"  {name:<20} missing: {reason}", flush=True)
                continue
            told = "  ".join(f"{key} {value:.1f}" for key, value in found[name].items())
            print(f"  {name:<20} ms: {told}", flush=True)
    return found


def _case(case: Case, sizes: Sizes, server: Server, folder: Path) -> dict[str, float]:
    with receiver("--times") as to:
        if case.kind == "ours":
            committed = _ours(case, sizes, server, folder, to)
        else:
            committed = _peer(case, sizes, server, folder, to)
        arrived = to.figures()["times"]
    found = [(arrived[key] - moment) * 1000 for key, moment in committed.items()]
    percentiles = statistics.quantiles(found, n=100, method="inclusive")
    return {"p50": percentiles[49], "p99": percentiles[98], "max": max(found)}


def _ours(
    case: Case, sizes: Sizes, server: Server, folder: Path, to: Receiver
) -> Mapping[str, float]:
    draw, committed = random.Random(1), {}  # noqa: S311 - pauses, not a secret
    with fresh(server.dsn) as dsn:
        jobs.add_endpoint(dsn, sizes.connections, sizes.days)
        outbox = jobs.Outbox(dsn)
        with working(case, dsn, to, sizes.connections, folder):
            time.sleep(SETTLE_S)
            with psycopg.connect(dsn, autocommit=True) as bell:
                for subject in range(sizes.trickled):
                    time.sleep(draw.uniform(0.3, 0.9))
                    (key,) = outbox.write([subject])
                    committed[key] = time.monotonic()
                    if case.doorbell:
                        bell.execute(statement("batch/doorbell"))
            eventually(lambda: to.figures()["distinct"] == sizes.trickled)
        outbox.close()
    return committed


def _peer(
    case: Case, sizes: Sizes, server: Server, folder: Path, to: Receiver
) -> Mapping[str, float]:
    nothing = folder / "nothing.jsonl"
    nothing.touch()
    with empty(server.dsn) as dsn:
        variables = {**os.environ, **peers(case, dsn, nothing, sizes.connections, 1)}
        subprocess.run([*command(case), "load"], env=variables, check=True, capture_output=True)
        with working(case, dsn, to, sizes.connections, folder):
            time.sleep(SETTLE_S)
            variables["BENCH_JOBS"] = str(folder / "jobs.jsonl")
            done = subprocess.run(
                [*command(case), "trickle"],
                env=variables,
                check=True,
                stdout=subprocess.PIPE,
                stderr=sys.stderr,
                text=True,
            )
            eventually(lambda: to.figures()["distinct"] == sizes.trickled)
    committed: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return committed
