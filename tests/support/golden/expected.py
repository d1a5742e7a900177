"""What the rules ask of the stream of the golden checkpoints."""

from collections import Counter
from pathlib import Path

from tests.support.golden.version import FILES, FIRST_FILES, SEED, THEN
from tests.support.job.job_outcome import Rows, required
from tests.support.job.job_stream import stream


def expected(policy: Path) -> tuple[Rows, Rows, Counter[tuple[object, ...]]]:
    """Recompute it, to be compared with `job_outcome.published`."""
    made = stream(SEED, FILES)
    batches = made.expected(policy, THEN, FIRST_FILES)
    changed_at = [*made.watermarks()][FIRST_FILES]
    assert changed_at
    for batch in batches:
        for rows in (batch.windows, batch.decisions):
            for place, row in enumerate(rows):
                if row.window_end <= changed_at:
                    rows[place] = row._replace(policy_version="2026-11-01")
    return required(batches)
