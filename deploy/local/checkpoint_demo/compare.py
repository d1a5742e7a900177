"""What the outbox holds, against what an undisturbed run of the same batches decides."""

from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.deploy.local.demo.audit import Action, audit, expected
from holdfast.deploy.local.demo.recompute import Recomputed
from holdfast.sink.contract import statements


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts of what differs; `equal` if nothing does."""

    decisions: int
    windows: int
    lost: int
    repeated: int
    out_of_order: int
    altered: int
    windows_different: int

    @property
    def equal(self) -> bool:
        """Whether the outbox is that of the undisturbed run."""
        return not any(
            (self.lost, self.repeated, self.out_of_order, self.altered, self.windows_different)
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


def compare(dsn: str, recomputed: Recomputed) -> Comparison:
    """Compare the outbox and the emitted windows with the recomputation."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        actions = [
            Action(f"hf_{row['key']}", *(row[name] for name in _FIELDS))
            for row in _rows(connection, "outbox_actions")
        ]
        windows = {
            (row["merchant_id"], row["window_end"]): (row["revision"], row["exposure_minor"])
            for row in _rows(connection, "outbox_windows")
        }
    should = {
        (window.merchant_id, window.window_end): (window.revision, window.exposure_minor)
        for batch in recomputed.batches
        for window in batch.windows
    }
    verdict = audit(expected(recomputed.decisions), actions)
    differing = [
        place for place in should.keys() | windows if should.get(place) != windows.get(place)
    ]
    return Comparison(
        decisions=verdict.applied,
        windows=len(windows),
        lost=verdict.lost,
        repeated=verdict.repeated,
        out_of_order=verdict.out_of_order,
        altered=verdict.altered,
        windows_different=len(differing),
    )


_FIELDS = ("merchant_id", "action", "window_end", "exposure_minor")


def _rows(connection: psycopg.Connection[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    text = statements.statement("holdfast.deploy.local.checkpoint_demo", name)
    return connection.execute(text).fetchall()
