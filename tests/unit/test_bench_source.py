"""The events of `make bench-source`, and how it counts lag."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.spark_app.input.lines import parse_lines
from tests.benchmarks.operator.events import Shape, write
from tests.benchmarks.source.events import lines, partition_of
from tests.benchmarks.source.live import Commit, Load, latencies


def test_the_lines_are_the_events_and_a_merchant_has_one_partition(tmp_path: Path) -> None:
    write(tmp_path, Shape(1, 500, 40))
    table = pq.read_table(tmp_path / "0000.parquet")
    parsed = parse_lines(pa.array(lines(table).to_pylist(), pa.binary()))
    assert not parsed.faults
    assert parsed.events.to_pylist() == table.select(parsed.events.schema.names).to_pylist()
    numbers = partition_of(table, 3).tolist()
    pairs = set(zip(table["merchant_id"].to_pylist(), numbers, strict=True))
    assert len(pairs) == len({merchant for merchant, _ in pairs})
    assert {number for _, number in pairs} == {0, 1, 2}


def test_the_lag_of_a_record_ends_with_the_commit_of_its_batch() -> None:
    load = Load("127.0.0.1:1", "nobody-asks", 2)
    load.times = [[0.0, 10.0, 11.0], [12.0]]
    commits = [Commit(12.0, {0: 2}), Commit(12.5, {0: 2, 1: 0}), Commit(15.0, {0: 3, 1: 1})]
    assert sorted(latencies(load, commits, {0: 1, 1: 0})) == [2.0, 3.0, 4.0]
