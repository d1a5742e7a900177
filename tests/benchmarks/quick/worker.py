"""The hot paths of the tree that this process imports; `__main__` runs one of each commit.

Reads the name of a case on each line of stdin, runs it once and prints what it took as JSON:
`{"processor ms": ..., "wall ms": ...}`. What it calls of the product is of the commit that is
measured: see `common.trees`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from holdfast.dispatcher.delivery.telemetry.log import configure
from holdfast.receiver import Secret, verify
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import ROWS
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.step import step
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.source import parser
from holdfast.spark_app.operator import stored
from holdfast.spark_app.operator.blobs import from_blob
from holdfast.spark_app.operator.groups import group_numbers
from holdfast.spark_app.operator.pack import Packer
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.sink.rows import decisions
from tests.support.dispatch.dispatching import drain
from tests.support.dispatch.sender import KEY_BYTES, Sent

START: Final = datetime(2026, 11, 2, 12, tzinfo=UTC)
POLICY: Final = """
version = "bench"
[[default]]
limit_minor = 20_000_000
release_level_minor = 5_000_000
"""
ROWS_PER_BATCH: Final = 20_000
SMALL_BATCHES: Final = 20
DELIVERIES: Final = 2_000
VERIFICATIONS: Final = 5_000


class Exposure:
    """Lines of JSON through parsing, validation, packing, state and step, batch after batch."""

    def __init__(self, rows: int, merchants: int) -> None:
        self._rows = rows
        self._merchants = merchants
        self._policy, self._settings = Policy.parse(POLICY), Settings()
        groups = group_numbers(8, 2)
        self._packer = Packer(parser(Format.JSON), self._policy, 300_000_000, groups)
        self._stored: dict[int, tuple[GroupValue, dict[int, str], dict[SegmentKey, Segment]]] = {}
        self._batch = 0

    def run(self) -> None:
        """Take one batch of ten seconds of event time."""
        begin = START + timedelta(seconds=10 * self._batch)
        lines = [
            f'{{"event_id":"e{self._batch}_{n}","merchant_id":"m_{n * 7919 % self._merchants}",'
            f'"type":"payout_submitted","amount_minor":{1000 + n},"currency":"USD",'
            f'"occurred_at":"{begin + timedelta(microseconds=n * 400):%Y-%m-%dT%H:%M:%S.%fZ}"}}'
            for n in range(self._rows)
        ]
        watermark_us = int((begin - timedelta(seconds=30)).timestamp()) * 1_000_000
        batch = pa.RecordBatch.from_pydict(
            {
                "line": pa.array(lines),
                "batch_time": pa.array([begin] * self._rows, pa.timestamp("us", "UTC")),
            }
        )
        for packed in self._packer(iter([batch])):
            columns = packed.column("key_group").to_pylist(), packed.column("events").to_pylist()
            for group, blob in zip(*columns, strict=True):
                self._advance(group, from_blob(blob, ROWS), watermark_us)
        self._batch += 1

    def _advance(self, group: int, rows: pa.RecordBatch, watermark_us: int) -> None:
        value, windows, ids = self._stored.get(group, (GroupValue(), {}, {}))
        contents = {key: segment.content for key, segment in ids.items()}
        before = stored.decode_group(value.settled_until, value.merchants, windows, contents)
        table = pa.Table.from_batches([rows])
        after, output = step(before, table, watermark_us, self._policy, self._settings)
        written, forgotten = stored.changed_windows(before, after)
        appended, removed = stored.changed_ids(ids, output.absorbed)
        removed += stored.forgotten_ids(ids, forgotten)
        self._stored[group] = (
            stored.group_value(after, None) or GroupValue(),
            {end: text for end, text in (windows | written).items() if end not in forgotten},
            {key: each for key, each in (ids | appended).items() if key not in removed},
        )


class Sink:
    """Batches of decisions into the outbox, from an Arrow table to COMMIT."""

    def __init__(self, dsn: str, rows: int, batches: int) -> None:
        self._writer = Writer(dsn, f"bench_{rows}")
        self._writer.begin_run(uuid4(), uuid4())
        self._rows, self._batches = rows, batches
        self._batch = 0

    def run(self) -> None:
        """Write the batches of one run."""
        for _ in range(self._batches):
            table = decisions(self._batch * self._rows, self._rows, 5_000)
            self._writer.write(self._batch, InDriver(prepare(BatchInput(table))))
            self._batch += 1


class Dispatch:
    """Deliveries to the receiver at a port, from the outbox to the settled attempt."""

    def __init__(self, dsn: str, url: str) -> None:
        self._dsn, self._subject = dsn, 0
        jobs.add_endpoint(dsn, 64)
        jobs.point_endpoint(dsn, url)
        self._outbox = jobs.Outbox(dsn)

    def prepare(self) -> None:
        """Fill the outbox, which is not measured."""
        self._outbox.write(range(self._subject, self._subject + DELIVERIES))
        self._subject += DELIVERIES

    def run(self) -> None:
        """Deliver everything."""
        drain(self._dsn, concurrency=64)


def _verifications() -> Callable[[], None]:
    sent = Sent.of("m_482", "block", 1)
    headers = [(name.encode(), value.encode()) for name, value in sent.headers.items()]
    secrets = (Secret(KEY_BYTES),)

    def run() -> None:
        for _ in range(VERIFICATIONS):
            verify(headers, sent.content, secrets)

    return run


def _cases(sink_dsn: str, dispatch_dsn: str, url: str) -> dict[str, Any]:
    dispatch = Dispatch(dispatch_dsn, url)
    return {
        "exposure_large": (Exposure(ROWS_PER_BATCH, 5_000).run, None),
        "exposure_small": (Exposure(200, 200).run, None),
        "sink_large": (Sink(sink_dsn, ROWS_PER_BATCH, 1).run, None),
        "sink_small": (Sink(sink_dsn, 50, SMALL_BATCHES).run, None),
        "dispatch": (dispatch.run, dispatch.prepare),
        "verify": (_verifications(), None),
    }


def main() -> None:
    """Answer until stdin ends."""
    with Path(os.devnull).open("w") as nowhere:
        configure(nowhere)
        _answer(_cases(*sys.argv[1:]))


def _answer(cases: dict[str, Any]) -> None:
    print(json.dumps(sorted(cases)), flush=True)
    for line in sys.stdin:
        run, prepare_run = cases[line.strip()]
        if prepare_run is not None:
            prepare_run()
        processor, wall = time.process_time(), time.perf_counter()
        run()
        used = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
        print(json.dumps({f"{name} ms": 1000 * took for name, took in used.items()}), flush=True)


if __name__ == "__main__":
    main()
