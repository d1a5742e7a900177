"""The example of docs/examples/order_review: its files, its processes, and what must come of them.

The answer is computed again in plain Python, and shares no code with the job or the sink.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.ports import free_port
from tests.support.dispatch.sender import secret_text
from tests.support.processes import end
from tests.support.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "order_review"
SECRET = "HOLDFAST_SECRET_ORDERS"
SECONDS = 240

SUBMIT = (
    f"--driver-java-options '{os.environ['HOLDFAST_SPARK_JAVA_OPTIONS']}'"
    " --conf spark.ui.enabled=false pyspark-shell"
)

FIRST = [{"version": "2026-11-01", "effective_from": "2026-11-01T00:00:00Z", "limit_minor": 50_000}]
CHANGED = [
    *FIRST,
    {"version": "2026-11-03", "effective_from": "2026-11-03T00:00:00Z", "limit_minor": 20_000},
]
"""The policy before and after it changed, while the job was down."""

Event = dict[str, Any]


def events(files: int, seed: int = 1) -> list[list[Event]]:
    """Return the events of each file: fresh ones, repeated ones, late ones, bad ones."""
    chance = random.Random(seed)  # noqa: S311 - a test's events
    result: list[list[Event]] = []
    minute = 0
    for number in range(files):
        rows: list[Event] = []
        for _ in range(40):
            minute += 1
            day, rest = divmod(minute, 100)
            late = chance.random() < 0.1
            rows.append(
                {
                    "event_id": f"e{minute}",
                    "order_id": f"o_{chance.randrange(9)}",
                    "type": chance.choice(["placed", "amended", "amended", "approved", "paid"]),
                    "amount_minor": chance.choice([-1, 1_000, 20_001, 50_000, 50_001, 90_000]),
                    "currency": chance.choice(["USD", "USD", "USD", "EUR"]),
                    "occurred_at": f"2026-11-{2 + day:02}T{rest % 24:02}:{rest // 24:02}:"
                    f"{0 if late else 30:02}.{minute:06}Z",
                }
            )
        if number:
            rows += chance.sample(result[-1], 5)
        result.append(rows)
    return result


def write(folder: Path, files: Mapping[int, Sequence[Event]]) -> None:
    """Write files of events; the source takes them in the order of their times."""
    folder.mkdir(exist_ok=True)
    for number, rows in files.items():
        path = folder / f"{number:04}.json"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "this is no event\n")
        os.utime(path, (1_793_620_000 + number,) * 2)


@dataclass
class Expected:
    """What the receiver's table must have, and how many rows the outbox must have set aside."""

    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    suppressed: int = 0
    duplicates: int = 0
    refused: int = 0
    last: dict[str, tuple[str, str]] = field(default_factory=dict)
    keys: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, rows: Sequence[Event], policy: Sequence[Mapping[str, Any]]) -> None:
        """Add the events of one file, which is one batch, with its line that is no event."""
        self.refused += 1
        for row in sorted(rows, key=lambda each: (each["order_id"], each["occurred_at"])):
            at = row["occurred_at"]
            if row["currency"] != "USD" or row["amount_minor"] <= 0:
                self.refused += 1
                continue
            rule = max(
                (each for each in policy if each["effective_from"] <= at),
                key=lambda each: str(each["effective_from"]),
            )
            action = _action(row, rule["limit_minor"])
            if action is not None:
                self._decide(row, action, rule["version"])

    def _decide(self, row: Event, action: str, version: str) -> None:
        order, at = row["order_id"], row["occurred_at"]
        key = (order, action, row["event_id"])
        if key in self.keys:
            self.duplicates += 1
            return
        self.keys.add(key)
        before, newest = self.last.get(order, ("", ""))
        if action == before or at < newest:
            self.suppressed += 1
            return
        self.last[order] = (action, at)
        changes = self.orders.get(order, {"changes": 0})["changes"] + 1
        self.orders[order] = {
            "order_id": order,
            "held": action == "hold",
            "policy_version": version,
            "changes": changes,
        }

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Entries, suppressed decisions, duplicates and refused rows."""
        changes = sum(each["changes"] for each in self.orders.values())
        return changes, self.suppressed, self.duplicates, self.refused


def _action(row: Event, limit_minor: int) -> str | None:
    if row["type"] in {"placed", "amended"} and row["amount_minor"] > limit_minor:
        return "hold"
    return "release" if row["type"] in {"amended", "approved"} else None


def run_job(
    folder: Path,
    dsn: str,
    failpoints: str = "",
    python: str = sys.executable,
    remote: str | None = None,
) -> int:
    """Run the example's job over a folder until it has read all of it; its exit code.

    `remote` is the address of a Connect server.
    """
    job = start_job(folder, dsn, failpoints, python, remote, options=["--available-now"])
    try:
        return job.wait(SECONDS)
    finally:
        end(job, 0)


def start_job(
    folder: Path,
    dsn: str,
    failpoints: str = "",
    python: str = sys.executable,
    remote: str | None = None,
    options: Sequence[str] = (),
) -> "subprocess.Popen[bytes]":
    """Start the example's job over a folder."""
    spark = {"PYSPARK_SUBMIT_ARGS": SUBMIT} if remote is None else {"SPARK_REMOTE": remote}
    places = {name: str(folder / name) for name in ("events", "checkpoint")}
    with (folder / "job.txt").open("ab") as log:
        return subprocess.Popen(
            [
                *(python, str(EXAMPLE / "job.py"), *options),
                *(word for name, place in places.items() for word in (f"--{name}", place)),
                *("--policy", str(folder / "policy.json")),
            ],
            env={
                **os.environ,
                **spark_environment(),
                "PYSPARK_PYTHON": python,
                **spark,
                "HOLDFAST_DSN": dsn,
                "HOLDFAST_FAILPOINTS": failpoints,
            },
            stdout=log,
            stderr=log,
        )


def decided(dsn: str) -> dict[str, dict[str, Any]]:
    """Return what a receiver would have in its table after the decisions of the outbox."""
    orders: dict[str, dict[str, Any]] = {}
    with psycopg.connect(dsn) as db:
        for (body,) in db.execute(
            "SELECT convert_from(body, 'UTF8') FROM holdfast.entry ORDER BY subject_id, sequence"
        ):
            decision = json.loads(body)
            order = decision["data"]["order_id"]
            orders[order] = {
                "order_id": order,
                "held": decision["type"] == "order_review.hold",
                "policy_version": decision["data"]["policy_version"],
                "changes": orders.get(order, {"changes": 0})["changes"] + 1,
            }
    return orders


def counts(dsn: str) -> tuple[int, int, int, int, int]:
    """Return the entries, suppressed decisions, duplicates and refused rows of all batches, and
    how many batches there are.
    """
    with psycopg.connect(dsn) as db:
        row = db.execute(
            "SELECT sum(entry_count), sum(suppressed_count), sum(duplicate_count),"
            " sum(quarantined_count), count(*) FROM holdfast.batch"
        ).fetchone()
    assert row is not None
    entries, suppressed, duplicates, refused, batches = map(int, row)
    return entries, suppressed, duplicates, refused, batches


@contextmanager
def receiver(dsn: str, log: Path) -> Iterator[str]:
    """Run the example's receiver until the block ends; its address."""
    port = free_port()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "receiver:app", "--port", str(port)],
            cwd=EXAMPLE,
            env={**os.environ, "ORDERS_DSN": dsn, SECRET: secret_text()},
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: "startup complete" in log.read_text() or process.poll() is not None)
        yield url
    finally:
        end(process, 20)


def orders(url: str) -> dict[str, dict[str, Any]]:
    """Return the rows of the receiver's own table, by their order."""
    return {each["order_id"]: each for each in httpx.get(f"{url}/orders", timeout=30).json()}
