"""What the footprint of a decision comes to at several rates: the table of docs/operators/capacity.

    python -m tests.benchmarks.footprint.sizes [--retain-days N] [--checkpoint-minutes N]

It reads the last report of `python -m tests.benchmarks.footprint` and measures nothing. The figures
of a rate are those of the batch whose size is nearest to the decisions of a second.
"""

import argparse
import json
from typing import Any, Final

from tests.benchmarks.common.tables import table
from tests.benchmarks.footprint.__main__ import REPORT

RATES: Final = (1, 100, 2_000, 10_000)
"""Decisions a second, each delivered to one endpoint."""
DAY_S: Final = 86_400
WAL_SHARE: Final = 1.9
"""A checkpoint begins when the WAL since the last one reaches max_wal_size by this:
1 + checkpoint_completion_target."""
KEPT_FOR_EVER: Final = ("entry_key", "batch", "subject", "transition")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.footprint.sizes")
    parser.add_argument("--retain-days", type=int, default=30)
    parser.add_argument("--checkpoint-minutes", type=int, default=15)
    given = parser.parse_args()
    batches = json.loads(REPORT.read_text())["batches"]
    lines = [_line(batches, rate, given.retain_days, given.checkpoint_minutes) for rate in RATES]
    head = (
        "decisions/s",
        "day, GB",
        f"{given.retain_days} days, GB",
        "kept for ever, GB a year",
        "WAL, MB/s",
        "max_wal_size, GB",
        "Postgres, cores",
        "dispatchers, cores",
    )
    print(table("Decisions delivered to one endpoint", head, lines))


def _line(batches: dict[str, Any], rate: int, days: int, minutes: int) -> tuple[str, ...]:
    nearest = min(batches, key=lambda size: abs(int(size) - rate))
    written, sent = batches[nearest]["written"], batches[nearest]["sent"]
    day = rate * DAY_S * (written["tables"]["entry"] + sent["tables"]["attempt"])
    ever = rate * DAY_S * 365 * sum(written["tables"][name] for name in KEPT_FOR_EVER)
    wal = rate * (written["wal"] + sent["wal"])
    return (
        f"{rate:,}",
        f"{day / 1e9:,.2f}",
        f"{day * days / 1e9:,.1f}",
        f"{ever / 1e9:,.1f}",
        f"{wal / 1e6:,.2f}",
        f"{wal * minutes * 60 * WAL_SHARE / 1e9:,.1f}",
        f"{rate * (written['server_us'] + sent['server_us']) / 1e6:.2f}",
        f"{rate * sent['client_us'] / 1e6:.2f}",
    )


if __name__ == "__main__":
    main()
