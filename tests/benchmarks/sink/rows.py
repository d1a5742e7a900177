"""The rows that every case writes: decisions as a Spark job makes them, and as finished texts.

Row `n` is for subject `n mod subjects`, whose types alternate and whose windows follow one another,
so that the sink writes every row. A body has about 300 bytes.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.sink.rows.batch import BatchInput, prepare

FILES: Final = 2
"""A batch is so many files, and so many partitions."""

START: Final = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
WINDOW_S: Final = 900
LIMIT: Final = 5_000_000

DECISIONS_DDL: Final = (
    "subject string, type string, key array<string>, occurred_at timestamp, data struct<"
    "merchant_id: string, action: string, window_end: timestamp, exposure_minor: bigint,"
    " limit_minor: bigint, currency: string, policy_version: string>"
)
FINISHED_DDL: Final = "id string, subject string, body string"

_TIME = pa.timestamp("us", "UTC")
_NOTHING = ""


def decisions(first: int, count: int, subjects: int) -> pa.Table:
    """Return rows `first` to `first + count`."""
    numbers = np.arange(first, first + count)
    window = numbers // subjects
    names = pc.binary_join_element_wise("m_", _text(numbers % subjects), _NOTHING)
    action = pc.if_else(pa.array(window % 2 == 1), "release", "block")
    start = int(START.timestamp())
    end = pa.array((start + window * WINDOW_S) * 1_000_000, pa.int64()).cast(_TIME)
    parts = [pa.repeat("bench/v1", count), names, action, _text(numbers)]
    places = (np.arange(count)[:, None] + np.arange(len(parts)) * count).ravel()
    key = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1) * len(parts), pa.int32()),
        pa.concat_arrays(parts).take(pa.array(places)),
    )
    data = {
        "merchant_id": names,
        "action": action,
        "window_end": end,
        "exposure_minor": pa.array(LIMIT + numbers % 1_000),
        "limit_minor": pa.repeat(pa.scalar(LIMIT, pa.int64()), count),
        "currency": pa.repeat("USD", count),
        "policy_version": pa.repeat("2026-11", count),
    }
    return pa.table(
        {
            "subject": names,
            "type": pc.binary_join_element_wise("payout_hold.", action, _NOTHING),
            "key": key,
            "occurred_at": end,
            "data": pa.StructArray.from_arrays(list(data.values()), list(data)),
        }
    )


def finished(rows: pa.Table) -> pa.Table:
    """Return id, subject and body of decisions: what somebody who needs no sequences writes."""
    entries = prepare(BatchInput(rows)).entries.combine_chunks()
    text, one = pa.large_string(), pa.scalar("1", pa.large_string())
    body = pc.binary_join_element_wise(
        entries["head"], one, entries["tail"], pa.scalar(_NOTHING, text)
    )
    names = ("id", "subject", "body")
    columns = (entries["key_text"], entries["subject"], body)
    return pa.table({n: c.cast(pa.string()) for n, c in zip(names, columns, strict=True)})


def write_batches(folder: Path, count: int, rows: int, subjects: int) -> None:
    """Write batches as files of `folder/decisions` and `folder/finished`, in both alike."""
    for number in range(count):
        table = decisions(number * rows, rows, subjects)
        write_batch(folder / "decisions", number, table)
        write_batch(folder / "finished", number, finished(table))


def write_batch(folder: Path, number: int, table: pa.Table) -> None:
    """Write one batch. Spark's file source takes files in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    per_file = -(-table.num_rows // FILES)
    for file_number in range(FILES):
        path = folder / f"{number:04}-{file_number}.parquet"
        pq.write_table(table.slice(file_number * per_file, per_file), path)
        os.utime(path, (START.timestamp() + number,) * 2)


def read_batch(folder: Path, number: int) -> pa.Table:
    """Return the rows of one batch."""
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob(f"{number:04}-*")))


def batch_count(folder: Path) -> int:
    """Return how many batches a folder has."""
    return len(list(folder.glob("*-0.parquet")))


def _text(numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    return pa.array(numbers).cast(pa.string())
