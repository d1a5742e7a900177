"""The test kit for jobs that write with the sink: docs/spark/testing-jobs.md.

The public names load on first use, and nothing of it is imported by the rest of Holdfast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.sink.contract.extras import needs

if TYPE_CHECKING:
    from holdfast.testing.checking import CheckFailed, check
    from holdfast.testing.fake import Decision, Entry, FakeOutbox, FakeSink, Quarantined, Suppressed
    from holdfast.testing.replaying import POINTS, ReplayFailed, replay

_HOME = {
    "CheckFailed": "holdfast.testing.checking",
    "Decision": "holdfast.testing.fake",
    "Entry": "holdfast.testing.fake",
    "FakeOutbox": "holdfast.testing.fake",
    "FakeSink": "holdfast.testing.fake",
    "POINTS": "holdfast.testing.replaying",
    "Quarantined": "holdfast.testing.fake",
    "ReplayFailed": "holdfast.testing.replaying",
    "Suppressed": "holdfast.testing.fake",
    "check": "holdfast.testing.checking",
    "replay": "holdfast.testing.replaying",
}

__all__ = [
    "POINTS",
    "CheckFailed",
    "Decision",
    "Entry",
    "FakeOutbox",
    "FakeSink",
    "Quarantined",
    "ReplayFailed",
    "Suppressed",
    "check",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        with needs(f"holdfast.testing.{name}", "sink", "numpy", "pyarrow"):
            return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
