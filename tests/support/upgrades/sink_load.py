"""Writes one batch after another into a stream until SIGTERM.

`python sink_load.py STREAM STATE SUBJECTS PAUSE_SECONDS` runs on the code of PYTHONPATH, whichever
version that is. The content of a batch follows from its number, and STATE has the number of the
next one; so a process of another version goes on, and repeats a batch of which it does not know
whether it was written. Each batch blocks or releases every subject, in turns.
"""

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

import pyarrow as pa

# Of whichever version: only what every supported one has.
from tests.support.dispatch.sender import hold

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)

CODE = [Path(folder) for folder in os.environ["PYTHONPATH"].split(os.pathsep)]

# Before 0.3 the folders were packages at the top level.
SINK = "holdfast.sink" if any((each / "setup.py").exists() for each in CODE) else "sink"

sink = import_module(SINK)
rows = import_module(f"{SINK}.rows.batch")
InDriver = import_module(f"{SINK}.transaction.driver_path").InDriver
Writer = import_module(f"{SINK}.transaction.writer").Writer


def main(stream: str, state: Path, subjects: int, pause_seconds: float) -> None:
    """Write until SIGTERM arrives."""
    assert any(Path(str(sink.__file__)).is_relative_to(folder) for folder in CODE)
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    writer = Writer(os.environ["HOLDFAST_DSN"], stream)
    writer.begin_run(uuid5(NAMESPACE_OID, stream), uuid4())
    batch = int(state.read_text()) if state.exists() else 0
    while not stopped.wait(pause_seconds):
        table = pa.Table.from_pylist(
            [_decision(f"m_{stream}_{number}", batch) for number in range(subjects)]
        )
        writer.write(batch, InDriver(rows.prepare(rows.BatchInput(table))))
        batch += 1
        draft = state.with_suffix(".draft")
        draft.write_text(str(batch))
        draft.rename(state)
    writer.close()


def _decision(merchant: str, batch: int) -> dict[str, Any]:
    """Return the decision of a window of one second."""
    start = NOON + timedelta(seconds=batch)
    end = start + timedelta(seconds=1)
    first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (start, end))
    action = "release" if batch % 2 else "block"
    return {
        "subject": merchant,
        "type": f"payout_hold.{action}",
        "key": ["payout-hold/v1", merchant, last, action, "1"],
        "occurred_at": end,
        "data": hold(merchant, action, window_start=first, window_end=last),
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
