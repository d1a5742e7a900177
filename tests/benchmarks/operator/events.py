"""Event files for every case: Parquet, seeded, one file a batch.

Merchants are drawn by Zipf's law, and the first file holds each of them if it is large enough: when
its window closes, it closes for every merchant at once. Events arrive up to SKEW_S out of order,
and some arrive a second time, at most RESENT_S later. Both are less than any case allows for, so
that none of them loses a row and all of them must find the same sums.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED: Final = 20_261_102
START_US: Final = int(datetime(2024, 11, 4, 12, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US: Final = 1_000_000
SKEW_S: Final = 20
RESENT_S: Final = 90
DUPLICATES: Final = 0.015
ROW_GROUP: Final = 50_000
"""Small enough for two tasks to share a file."""

_TYPES = pa.array(["payout_submitted", "payout_failed", "payout_reversed"])
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a set of files holds; one of them covers `file_s` seconds of event time."""

    files: int
    per_file: int
    merchants: int
    file_s: float = 300
    seed: int = SEED

    @property
    def events(self) -> int:
        return self.files * self.per_file


def write(folder: Path, shape: Shape) -> None:
    """Write the files of a shape, oldest first; the same bytes for the same shape."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(shape.seed)
    arrivals = _Arrivals.draw(chance, shape)
    for number in range(shape.files):
        rows_of_file = slice(number * shape.per_file, (number + 1) * shape.per_file)
        part = folder / f".{number:04}.parquet"
        pq.write_table(arrivals.table(rows_of_file), part, row_group_size=ROW_GROUP)
        # Spark takes the oldest file first.
        os.utime(part, (1_700_000_000 + number,) * 2)
        part.rename(folder / f"{number:04}.parquet")


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Columns in the order in which events arrive."""

    number: np.ndarray
    """Which event it is: twice the same where it was sent twice."""
    merchant: np.ndarray
    amount: np.ndarray
    kind: np.ndarray
    occurred_us: np.ndarray

    @classmethod
    def draw(cls, chance: np.random.Generator, shape: Shape) -> "_Arrivals":
        count = shape.events
        again = round(count * DUPLICATES)
        fresh = count - again
        span_us = round(shape.files * shape.file_s * SECOND_US)
        # Even spacing: a file of the same number of events is the same length of event time.
        occurred = START_US + np.arange(fresh) * span_us // fresh
        merchant = _zipf(chance, fresh, shape.merchants)
        first = chance.permutation(min(shape.per_file * 9 // 10, fresh))[: shape.merchants]
        merchant[first] = np.arange(len(first))
        amount = chance.integers(1_000, 400_000, fresh)
        kind = chance.choice(3, fresh, p=[0.7, 0.2, 0.1])
        amount[kind > 0] *= -1

        repeated = np.sort(chance.choice(fresh, again, replace=False))
        number = np.concatenate([np.arange(fresh), repeated])
        arrives = np.concatenate(
            [
                occurred + chance.integers(0, SKEW_S * SECOND_US, fresh),
                occurred[repeated] + chance.integers(SKEW_S, RESENT_S, again) * SECOND_US,
            ]
        )
        number = number[np.argsort(arrives, kind="stable")]
        return cls(number, merchant[number], amount[number], kind[number], occurred[number])

    def table(self, part: slice) -> pa.Table:
        number = self.number[part]
        return pa.table(
            {
                "event_id": _texts(
                    number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), "evt_"
                ),
                "merchant_id": _texts(self.merchant[part].astype(np.uint64), "m_", digits=8),
                "type": _TYPES.take(pa.array(self.kind[part])),
                "amount_minor": pa.array(self.amount[part]),
                "currency": pa.repeat("USD", len(number)),
                "occurred_at": pa.array(self.occurred_us[part]).view(pa.timestamp("us", "UTC")),
            }
        )


def _zipf(chance: np.random.Generator, count: int, merchants: int) -> np.ndarray:
    weights = np.cumsum(1 / np.arange(1, merchants + 1))
    rank = np.searchsorted(weights, chance.random(count) * weights[-1])
    return chance.permutation(merchants)[rank]


def _texts(values: np.ndarray, prefix: str, digits: int = 16) -> pa.Array:
    """`prefix` and the hexadecimal digits of each value."""
    raw = values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - digits // 2 :]
    letters = np.empty((len(values), len(prefix) + digits), np.uint8)
    letters[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    letters[:, len(prefix) :] = _HEX[raw].view(np.uint8)
    width = letters.shape[1]
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))
    )
