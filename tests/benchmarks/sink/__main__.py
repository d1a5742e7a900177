"""`make bench-sink`: rows a second into Postgres, the cost of a row by stored rows, and memory."""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal
from uuid import uuid4

from pyspark.sql import DataFrame

from holdfast.sink import OutboxSink
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.common.filled import STORED, Filled, fill
from tests.benchmarks.common.processes import Peak, driver_memory, memory_of
from tests.benchmarks.common.runner import Bench, Case, Run, main
from tests.benchmarks.common.server import Server, server, sized
from tests.benchmarks.common.trees import HERE, Tree
from tests.benchmarks.sink.cases import CASES, STREAM, Stopwatch, check_outbox, play
from tests.benchmarks.sink.rows import DECISIONS_DDL, decisions, write_batch, write_batches

RATIOS = {
    **{
        f"vs_{other}": ("sink", other)
        for other in (*(n for n, case in CASES.items() if not case.is_ours), "library")
    },
    "staged_vs_sink": ("staged", "sink"),
    "many_vs_few_subjects": ("sink_many", "sink"),
}


@dataclass(frozen=True)
class Sizes:
    """Of a run; the full ones are those of the figures in the documents."""

    rows: int = 100_000
    """In a batch."""
    subjects: int = 5_000
    rounds: int = 3
    warm: int = 8
    """Batches at the start of each run that are not counted."""
    counted: int = 3
    stored: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    """Rows in the tables at the points of the growth."""
    large: tuple[int, ...] = (100_000, 300_000, 1_000_000)
    """Rows of large batches on both paths; 1,000,000 are the most on the driver path."""
    quick: ClassVar = {"rows": 4_000, "subjects": 200, "rounds": 1, "warm": 1, "counted": 1} | {
        "stored": (1_000, 10_000),
        "large": (15_000,),
    }


def throughput(bench: Bench[Sizes]) -> None:
    """Every case, each run in a process and a database of its own."""
    size, running = bench.size, bench.server
    for kind, subjects in (("few", size.subjects), ("many", size.rows)):
        write_batches(bench.folder / kind, size.warm + size.counted, size.rows, subjects)
    with ExitStack() as stack:
        templates = {str(tree): stack.enter_context(running.fresh(tree)) for tree in bench.trees}

        def run(name: str, tree: Tree) -> Run:
            batches = bench.folder / ("many" if CASES[name].many else "few")
            with running.fresh(copy_of=templates[str(tree)]) as dsn:
                running.checkpoint()
                laps = tree.call(
                    "tests.benchmarks.sink.cases:run", name, dsn, str(batches), running.pid
                )[size.warm :]
            rows, seconds, cpu = size.rows * len(laps), *map(sum, zip(*laps, strict=True))
            return {"rows/s": rows / seconds, "processor s per M": cpu / rows * 1e6}

        ours = {n: partial(run, n) for n, case in CASES.items() if case.is_ours}
        others = {n: partial(run, n, HERE) for n, case in CASES.items() if not case.is_ours}
        bench.compare(
            f"Rows a second into Postgres, {size.rows:,} a batch",
            bench.with_base(ours) | others,
            size.rounds,
            by="rows/s",
            ratios=RATIOS,
            labels={name: case.label for name, case in CASES.items()},
        )


def growth(bench: Bench[Sizes]) -> None:
    """The cost of a row by stored rows: the library part, a database for each point.

    What Spark does before it does not know what is stored.
    """
    with server(bench.folder, sized()) as running, ExitStack() as stack:
        points = {
            str(stored): stack.enter_context(_writing(running, stored, bench.size))
            for stored in bench.size.stored
        }
        running.checkpoint()
        first, *_, last = points
        bench.compare(
            "Microseconds a row by rows already stored, library part of the driver path",
            points,
            bench.size.rounds,
            warm=bench.size.warm,
            by="us",
            x="stored",
            ratios={"growth": (last, first)},
        )


@contextmanager
def _writing(running: Server, stored: int, size: Sizes) -> Iterator[Case]:
    """Yield what writes one more batch into a database with so many rows."""
    with running.fresh() as dsn, closing(Writer(dsn, STREAM)) as writer:
        fill(dsn, Filled(stored, size.subjects), STORED)
        writer.begin_run(uuid4(), uuid4())
        # Every subject begins with a block, as the stream is new to them.
        first, numbers = -(-stored // (2 * size.subjects)) * 2 * size.subjects, itertools.count()

        def run() -> Run:
            number, watch = next(numbers), Stopwatch(running.pid)
            table = decisions(first + number * size.rows, size.rows, size.subjects)
            with watch.lap():
                written = writer.write(number, InDriver(prepare(BatchInput(table))))
            if written.counts.entries != size.rows:
                raise RuntimeError(f"{size.rows} rows went in and {written.counts} came of them")
            ((seconds, cpu),) = watch.laps
            return {"us": seconds / size.rows * 1e6, "us of processor": cpu / size.rows * 1e6}

        yield run


def memory(bench: Bench[Sizes]) -> None:
    """The driver (Python and JVM) while one large batch is written on each path, above a small one.

    Workers and Postgres are beside it: a page that processes share counts once.
    """
    running, rows = bench.server, []
    for count in bench.size.large:
        folder, small = bench.folder / f"large-{count}", max(count // 100, 1)
        write_batch(folder / "decisions", 0, decisions(0, small, bench.size.subjects))
        write_batch(folder / "decisions", 1, decisions(small, count, bench.size.subjects))
        for path in ("driver", "staged"):
            with running.fresh() as dsn:
                run = HERE.call(f"{__spec__.name}:large", path, dsn, str(folder), running.pid)
            rows.append({"path": path, "decisions": count, **run})
            bench.say(rows[-1])
    bench.table("Memory while one batch is written", rows)


def large(path: Literal["driver", "staged"], dsn: str, name: str, server_pid: int | None) -> Run:
    """Write a small batch and a large one, and watch the second."""
    sink, folder, results = OutboxSink(dsn, stream=STREAM, path=path), Path(name), dict[str, Any]()

    def each(df: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            sink(df, batch_id)
            return
        before = driver_memory()["driver"]
        with (
            Peak(driver_memory, 0.05) as peak,
            Peak(memory_of(server_pid, shared_once=True) if server_pid else dict) as postgres,
        ):
            began = time.perf_counter()
            sink(df, batch_id)
            results["s"] = time.perf_counter() - began
        sizes = {"before": before, "peak": peak.most["driver"], "workers": peak.most["python"]}
        sizes |= {"more": sizes["peak"] - before, "Postgres": postgres.most.get("bytes", 0)}
        results.update({f"{what} MB": size / 1e6 for what, size in sizes.items()})

    play(folder / "decisions", DECISIONS_DDL, each)
    sink.close()
    check_outbox(dsn, folder)
    return results


PARTS = {"throughput": throughput, "growth": growth, "memory": memory}

if __name__ == "__main__":
    main("sink", Sizes, PARTS, about=__doc__ or "")
