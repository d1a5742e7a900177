"""What the benchmarks compute from what they measure."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.spark_app.input.lines import parse_lines
from tests.benchmarks import object_store_page
from tests.benchmarks.common.runner import Bench
from tests.benchmarks.common.tables import markdown, text
from tests.benchmarks.common.trees import ALIASES, HERE, Missing
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.__main__ import ratios
from tests.benchmarks.dispatch.cases import ORDERED_PEERS, UNORDERED_PEERS
from tests.benchmarks.operator.events import Shape, write
from tests.benchmarks.source import Commit, Load, latencies, lines, partition_of


def test_tables_of_the_object_store_are_those_of_its_report() -> None:
    page, report = object_store_page.PAGE.read_text(), object_store_page.REPORT.read_text()
    for name, rows in object_store_page.tables(json.loads(report)).items():
        assert f"<!-- {name} -->\n{markdown(rows)}\n<!-- end -->" in page
    assert json.loads(report)["date"] in object_store_page.PLOT.read_text()


def test_ratio_pairs_the_runs_of_a_round(tmp_path: Path) -> None:
    seconds = {"ours": iter((9, 1, 2, 3)), "other": iter((9, 2, 2, 2))}

    def missing() -> dict[str, float]:
        raise Missing("no such program")

    cases = {name: lambda each=each: {"s": next(each)} for name, each in seconds.items()}
    bench = Bench("some", None, tmp_path, ExitStack(), [HERE])
    pairs = {"vs_other": ("ours", "other"), "vs_third": ("ours", "third")}
    bench.compare("Some", {**cases, "third": missing}, 3, by="s", warm=1, ratios=pairs)
    assert bench.found["ratios"] == {"vs_other": {"median": 1, "min": 0.5, "max": 1.5}}
    assert bench.found["missing"] == {"third": "no such program"}
    rows = bench.found["tables"]["Some"]["rows"]
    assert [(row["case"], text(row["s"])) for row in rows] == [
        ("ours", "2 (1 to 3)"),
        ("other", "2"),
    ]


def test_older_commit_has_its_modules_below_holdfast(tmp_path: Path) -> None:
    for name, content in {
        "names/holdfast/__init__.py": ALIASES,
        "tree/sink/__init__.py": "class Row: pass",
        "tree/sink/some.py": "from sink import Row",
        "tree/dispatcher/__init__.py": "",
        "tree/dispatcher/receiver/__init__.py": "from sink import Row",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    program = (
        "import holdfast.receiver, holdfast.sink.some, sink\n"
        "assert sink.Row is holdfast.sink.some.Row is holdfast.receiver.Row"
    )
    roots = f"{tmp_path / 'names'}:{tmp_path / 'tree'}"
    environment = {"PYTHONPATH": roots}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)


def test_dispatch_compares_with_the_best_peer_of_each_kind() -> None:
    medians = {"holdfast": 200, "loop_aiohttp": 50, "loop_pyreqwest": 160, "pgboss_fifo": 100}
    factors = ratios(medians | {"graphile_queues": 80, "pgqueuer": 160}, "asyncio")
    assert {name: other for name, (_, other) in factors.items()} == {
        "vs_bare_client": "loop_asyncio",
        "vs_library_client": "loop_pyreqwest",
        "vs_best_ordered_peer": "pgboss_fifo",
        "vs_best_unordered_peer": "pgqueuer",
        "httpx_vs_bare_client": "loop_httpx",
    }


def test_dispatch_has_every_peer_in_its_kind() -> None:
    assert ORDERED_PEERS == ("graphile_queues", "pgboss_fifo", "procrastinate_lock")
    assert {"graphile", "pgboss", "pgqueuer", "procrastinate", "naive_aiohttp"} <= set(
        UNORDERED_PEERS
    )


@pytest.mark.parametrize("subjects", [jobs.shuffled(20_000, 5_000), jobs.burst(20_000, 5_000)])
def test_shape_has_as_many_jobs_for_every_subject(subjects: list[int]) -> None:
    assert len(subjects) == 20_000
    assert len(set(Counter(subjects).values())) == 1


def test_burst_has_the_jobs_of_a_subject_in_a_row() -> None:
    assert jobs.burst(8, 500) == [0] * 4 + [1] * 4


def test_lines_are_the_events_and_a_merchant_has_one_partition(tmp_path: Path) -> None:
    write(tmp_path, Shape(1, 500, 40))
    table = pq.read_table(tmp_path / "0000.parquet")
    parsed = parse_lines(pa.array(lines(table).to_pylist(), pa.binary()))
    assert not parsed.faults
    assert parsed.events.to_pylist() == table.select(parsed.events.schema.names).to_pylist()
    numbers = partition_of(table, 3).tolist()
    pairs = set(zip(table["merchant_id"].to_pylist(), numbers, strict=True))
    assert len(pairs) == len({merchant for merchant, _ in pairs})
    assert {number for _, number in pairs} == {0, 1, 2}


def test_lag_of_a_record_ends_with_the_commit_of_its_batch() -> None:
    load = Load("127.0.0.1:1", "nobody-asks", 2)
    load.times = [[0.0, 10.0, 11.0], [12.0]]
    commits = [Commit(12.0, {0: 2}), Commit(12.5, {0: 2, 1: 0}), Commit(15.0, {0: 3, 1: 1})]
    assert sorted(latencies(load, commits, {0: 1, 1: 0})) == [2.0, 3.0, 4.0]
