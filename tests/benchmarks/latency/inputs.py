"""Event files of small batches: some with rows, then as many without any."""

import os
from pathlib import Path

import pyarrow.parquet as pq

from tests.benchmarks.latency.sizes import Sizes
from tests.benchmarks.operator.events import Shape, write

FILE_S = 5
"""Seconds of event time in a file: a window closes now and then, as in a job that runs."""


def write_files(folder: Path, sizes: Sizes) -> None:
    """Write the files of a run, one a batch: the warm ones and the measured ones."""
    filled = sizes.warm + sizes.batches
    write(folder, Shape(filled, sizes.rows, sizes.rows, file_s=FILE_S))
    empty = pq.read_table(folder / "0000.parquet").slice(0, 0)
    for number in range(filled, filled + sizes.batches):
        part = folder / f".{number:04}.parquet"
        pq.write_table(empty, part)
        # Spark takes the oldest file first.
        os.utime(part, (1_700_000_000 + number,) * 2)
        part.rename(folder / f"{number:04}.parquet")
