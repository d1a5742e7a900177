"""The events of every case as lines of JSON, in files and in the partitions of a topic."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.deploy.local.kafka.topics import Writer
from tests.benchmarks.operator.events import Shape
from tests.benchmarks.operator.events import write as write_parquet

FLUSH_S = 300.0


def lines(table: pa.Table) -> pa.Array:
    """Return each event as a line of JSON."""
    texts = {
        **{name: table[name] for name in ("event_id", "merchant_id", "type", "currency")},
        "occurred_at": pc.strftime(table["occurred_at"], "%Y-%m-%dT%H:%M:%SZ"),
    }
    parts: list[pa.Array | str] = ["{"]
    for name, column in texts.items():
        parts += [f'"{name}":"', column, '",']
    parts += ['"amount_minor":', table["amount_minor"].cast(pa.string()), "}"]
    return pc.binary_join_element_wise(*parts, "")


def write_files(folder: Path, shape: Shape) -> None:
    """Write the events of a shape as files of lines, one a batch, the oldest first."""
    folder.mkdir(parents=True)
    for number, table in enumerate(_tables(shape)):
        part = folder / f".{number:04}.json"
        with part.open("wb") as file:
            for line in lines(table).to_pylist():
                file.write(line.encode() + b"\n")
        os.utime(part, (1_700_000_000 + number,) * 2)
        part.rename(folder / f"{number:04}.json")


def write_topic(servers: str, topic: str, partitions: int, shape: Shape) -> None:
    """Write the same events in the same order into a topic, each merchant into one partition."""
    writer = Writer(servers)
    for table in _tables(shape):
        number = partition_of(table, partitions)
        for line, partition in zip(lines(table).to_pylist(), number.tolist(), strict=True):
            writer.write(topic, line, partition=partition)
        writer.flush(FLUSH_S)


def partition_of(table: pa.Table, partitions: int) -> np.ndarray:
    """Return the partition of each event, by its merchant."""
    merchant = table["merchant_id"].combine_chunks().dictionary_encode()
    names = [int(name.removeprefix("m_"), 16) for name in merchant.dictionary.to_pylist()]
    return (np.array(names) % partitions)[merchant.indices.to_numpy()]


def _tables(shape: Shape) -> Iterator[pa.Table]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        write_parquet(Path(folder), shape)
        for path in sorted(Path(folder).glob("[0-9]*")):
            yield pq.read_table(path)
