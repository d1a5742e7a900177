"""`replay`: a job over recorded batches, killed at each boundary of the sink's transaction."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from holdfast.sink.contract.failpoints import ENVIRONMENT

Job = Sequence[str] | Callable[[str, Path, Path], None]

POINTS = tuple(f"S{number}" for number in range(1, 10))
"""Batch received, transaction open, ledger row inserted, entries half written, entries written,
all written, before COMMIT, after COMMIT, before `foreachBatch` returns (docs/failures.md)."""

_CALL = "import pickle, sys; job, *words = pickle.load(sys.stdin.buffer); job(*words)"

_TABLES = {
    "batch": """
        SELECT stream, batch_id, row_count, entry_count, duplicate_count, differing_count,
            suppressed_count, quarantined_count
        FROM holdfast.batch""",
    "entry": """
        SELECT stream, batch_id, name, sequence, type, occurred_at, priority,
            convert_from(body, 'UTF8')
        FROM holdfast.entry JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON subject.id = subject_id""",
    "suppressed": """
        SELECT stream, batch_id, name, type, key_parts, occurred_at, cause::text, data
        FROM holdfast.suppressed JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON subject.id = subject_id""",
    "quarantine": """
        SELECT stream, batch_id, reason::text, rule, row
        FROM holdfast.quarantine JOIN holdfast.batch USING (batch_no)""",
}
"""What a kill must not change: neither times, nor the ids of queries and runs."""


KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The exit codes of a process that was killed: its own, and through a shell."""


class ReplayFailed(AssertionError):
    """A killed job did not leave what an unkilled one leaves, or the job itself failed."""


def replay(
    job: Job,
    batches: Path,
    make_outbox: Callable[[], str],
    folder: Path,
    *,
    points: Sequence[str] = POINTS,
    nth: int = 1,
    environment: Mapping[str, str] | None = None,
    seconds: float = 300,
) -> int:
    """Run a job over recorded batches, killed at each point in turn; return the number of kills.

    The job runs in a process of its own and ends when all batches are written. It is a command, in
    which `{batches}` and `{checkpoint}` are replaced and which finds its outbox in `HOLDFAST_DSN`;
    or a function of a module, called with the outbox's DSN, `batches` and the checkpoint.
    `make_outbox` returns the DSN of an empty outbox. First the job runs without a kill. Then, for
    each point, it runs in another outbox, is killed when it passes the point for the `nth` time (2:
    mostly in its second batch), and runs again. Checkpoints and the jobs' output are in `folder`.

    Raises `ReplayFailed` where the killed job leaves another outbox than the unkilled one, where it
    does not pass the point, or where it fails or takes longer than `seconds`.
    """
    run = _Runs(job, batches, folder, dict(environment or {}), seconds)
    expected = run.to_end("unkilled", make_outbox())
    for point in points:
        dsn = make_outbox()
        code = run.once(point, dsn, f"{point}=kill@{nth}")
        if code == 0:
            raise ReplayFailed(
                f"the job ended without a kill: it does not pass {point} {nth} times. Record more"
                " batches, each with a decision, or name the `points` that it passes."
            )
        run.require_kill(point, code)
        _require_same(point, expected, run.to_end(point, dsn))
    return len(points)


class _Runs:
    def __init__(
        self,
        job: Job,
        batches: Path,
        folder: Path,
        environment: dict[str, str],
        seconds: float,
    ) -> None:
        self._job = job
        self._batches = batches.resolve()
        self._folder = folder.resolve()
        self._environment = environment
        self._seconds = seconds

    def to_end(self, name: str, dsn: str) -> dict[str, list[tuple[Any, ...]]]:
        """Run the job until it has written everything, and return the outbox."""
        code = self.once(name, dsn, "")
        if code:
            raise ReplayFailed(f"the job ({name}) ended with {code}: {self._log(name)}")
        with psycopg.connect(dsn) as db:
            return {
                table: sorted(db.execute(query).fetchall(), key=repr)
                for table, query in _TABLES.items()
            }

    def require_kill(self, name: str, code: int) -> None:
        """Raise `ReplayFailed` for an exit code that is not that of a kill."""
        if code not in KILLED:
            raise ReplayFailed(
                f"the job ended with {code} before {name} could kill it: {self._log(name)}"
            )

    def once(self, name: str, dsn: str, failpoints: str) -> int:
        """Run the job once, with everything that it starts; return its exit code."""
        checkpoint = self._folder / name
        checkpoint.mkdir(parents=True, exist_ok=True)
        command, given = self._command(dsn, checkpoint)
        own = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOLDFAST_DSN": dsn,
            ENVIRONMENT: failpoints,
        }
        with checkpoint.with_suffix(".log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self._environment, **own},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.communicate(given, self._seconds)
            except subprocess.TimeoutExpired:
                raise ReplayFailed(
                    f"the job ({name}) did not end within {self._seconds:g} s: {self._log(name)}"
                ) from None
            finally:
                with suppress(ProcessLookupError):  # what a killed driver leaves, as its JVM
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode

    def _command(self, dsn: str, checkpoint: Path) -> tuple[list[str], bytes]:
        if callable(self._job):
            arguments = (self._job, dsn, self._batches, checkpoint)
            return [sys.executable, "-c", _CALL], pickle.dumps(arguments)
        places = {"{batches}": str(self._batches), "{checkpoint}": str(checkpoint)}
        words = list(self._job)
        for name, place in places.items():
            words = [word.replace(name, place) for word in words]
        return words, b""

    def _log(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return f"{path} ends with:\n{path.read_text(errors='replace')[-2000:]}"


def _require_same(
    point: str,
    expected: dict[str, list[tuple[Any, ...]]],
    left: dict[str, list[tuple[Any, ...]]],
) -> None:
    for table, rows in expected.items():
        missing = [row for row in rows if row not in left[table]]
        added = [row for row in left[table] if row not in rows]
        if rows != left[table]:
            raise ReplayFailed(
                f"killed at {point}, the job leaves another outbox. Table {table}: {len(rows)} rows"
                f" without a kill, {len(left[table])} with it; only without: {missing[:1]}; only"
                f" with: {added[:1]}. Let the decisions depend on the rows of the batch alone"
                " (`holdfast.testing.check` names the column)."
            )
