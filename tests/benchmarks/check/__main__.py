"""The duration of `holdfast check` on the last day of a busy outbox.

    python -m tests.benchmarks.check --server DSN

One million entries and five million attempts, all consistent. The check is run as a person would;
`--receiver` is not part of it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.filled import Filled, fill
from tests.benchmarks.common.tables import table


def main() -> None:
    """Fill a database, check it, print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="a server that databases may be made on")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with fresh(given.server) as dsn:
        began = time.monotonic()
        fill(dsn, Filled(given.entries, given.subjects))
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        seconds = [_checked(dsn) for _ in range(given.rounds)]
    print(
        table(
            f"holdfast check, {given.entries:,} entries, {given.entries * 5:,} attempts",
            ("", "s"),
            (
                ("median", f"{statistics.median(seconds):.1f}"),
                ("slowest", f"{max(seconds):.1f}"),
            ),
        )
    )


def _checked(dsn: str) -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "holdfast.dispatcher.cli.main", "check"],
        env={**os.environ, "HOLDFAST_DSN": dsn},
        check=True,
    )
    return time.monotonic() - began


if __name__ == "__main__":
    main()
