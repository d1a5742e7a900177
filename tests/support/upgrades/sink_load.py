"""Writes one batch after another into a stream until SIGTERM: `python sink_load.py STREAM STATE`.

It runs on the code of PYTHONPATH, whichever version that is. The content of a batch follows from
its number, and STATE has the number of the next one; so a process of another version goes on, and
repeats a batch of which it does not know whether it was written.
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from threading import Event
from uuid import NAMESPACE_OID, uuid4, uuid5

import sink
from sink.rows.batch import BatchInput, prepare
from sink.transaction.driver_path import InDriver
from sink.transaction.writer import Writer
from tests.support.dispatch.entries import NOON, decision, table

SUBJECTS = 5
PAUSE_SECONDS = 0.03


def main(stream: str, state: Path) -> None:
    """Write until SIGTERM arrives."""
    assert Path(sink.__file__).is_relative_to(os.environ["PYTHONPATH"])
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    writer = Writer(os.environ["HOLDFAST_DSN"], stream)
    writer.begin_run(uuid5(NAMESPACE_OID, stream), uuid4())
    batch = int(state.read_text()) if state.exists() else 0
    while not stopped.wait(PAUSE_SECONDS):
        at = NOON + timedelta(seconds=batch)
        rows = [
            decision(f"m_{stream}_{number}", batch + 1, occurred_at=at)
            for number in range(SUBJECTS)
        ]
        writer.write(batch, InDriver(prepare(BatchInput(table(*rows)))))
        batch += 1
        draft = state.with_suffix(".draft")
        draft.write_text(str(batch))
        draft.rename(state)
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
