"""A wrong policy was live for an hour: the page, followed by the job's own rules.

The exposure step, the policy's history and the entries are those of the job, without Spark: what
the step decides goes through the sink's library.
"""

import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import step
from holdfast.spark_app.operator.output import entries
from tests.support.documents.runbook import Reader, Site
from tests.support.job.driver import Driver
from tests.support.job.exposure import at, row, table

pytestmark = pytest.mark.rest

PAGE = "policy-wrong"

LIMITS = "limit_minor = {0}\nrelease_level_minor = {0}\n"
RIGHT = "[[default]]\n" + LIMITS.format(5_000_000)
WRONG = "[[default]]\neffective_from = 2026-11-02T12:00:30Z\n" + LIMITS.format(500_000)
"""A zero is missing."""

EXPOSURES = {"m_482": 3_000_000, "m_7": 6_000_000, "m_8": 400_000}
"""Of each window. Only the second one is above the right limit."""


def policy(version: str, *parts: str) -> Policy:
    return Policy.parse(f'version = "{version}"\n' + "".join(parts))


def again(since: str) -> str:
    """The right limits once more, from a time of the day on."""
    return RIGHT.replace("]]\n", f"]]\neffective_from = 2026-11-02T{since}Z\n", 1)


class Job:
    """The job's rules over the sink: a batch is a window's events, and then its end."""

    def __init__(self, dsn: str) -> None:
        self.driver = Driver(dsn)
        self.history = PolicyHistory.begin(policy("2026-11-01", RIGHT))
        self.watermark = at("12:00")
        self._state = GroupState.empty()
        self._batches = 0

    def restart(self, new: Policy) -> None:
        """Start with another policy, as the job checks it."""
        self.history = self.history.followed_by(new, self.watermark)

    def window(self, begin: str, **exposures: int) -> None:
        """Read a window's events, and then close it."""
        events = [
            row(f"{begin}-{merchant}", begin, amount, merchant)
            for merchant, amount in exposures.items()
        ]
        self._batch(*events)
        self.watermark = at(begin) + 16 * 60_000_000
        self._batch()

    def _batch(self, *events: dict[str, object]) -> None:
        self._state, output = step(
            self._state, table(*events), self.watermark, self.history.policy, Settings()
        )
        self.driver.tables(self._batches, entries(output.decisions.combine_chunks()))
        self._batches += 1


def test_the_next_decision_corrects_and_nothing_is_rewritten_or_repeated(
    site: Site, reader: Reader
) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    job = Job(site.dsn)
    job.restart(policy("2026-11-02", RIGHT, WRONG))
    job.window("12:00", **EXPOSURES)
    job.window("12:15", **EXPOSURES)
    site.delivered()

    def one_more() -> None:
        job.window("12:30", **EXPOSURES | {"m_8": 4_000_000})

    def started() -> None:
        with pytest.raises(CommandError, match="are decided already"):
            job.restart(policy("2026-11-02b", RIGHT))
        job.restart(policy("2026-11-02b", RIGHT, WRONG, again("12:46:01")))
        job.window("12:45", **EXPOSURES)
        job.driver.sink.close()

    reader.known["NEW_VERSION"] = "2026-11-02b"
    reader.finds = {"KEY": r"(hf_[0-9a-f]{32})", "VERSION": r'"policy_version":"([^"]+)"'}
    reader.follow(
        PAGE,
        {
            "the job runs until it is stopped": one_more,
            "the job is started with the corrected policy, and a window has closed": started,
        },
    )
    assert site.applied() == [
        ("m_482", "block", "applied"),
        ("m_482", "release", "applied"),
        ("m_7", "block", "applied"),
        ("m_8", "block", "applied"),
        ("m_8", "release", "applied"),
    ]
    assert site.value("SELECT count(*) FROM holdfast.attempt") == len(site.applied())
