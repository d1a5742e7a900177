"""Each alert of a dispatcher is fired by a real fault, in a real Prometheus.

Real: the command in its own process, Postgres, the receiver, Prometheus. The rules are those of
deploy/prometheus/holdfast.yml without their `for`.
"""

import json
from collections.abc import Callable

import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.dispatch.dispatching import drain
from tests.support.dispatch.sender import key_of, receipt
from tests.support.dispatch.webhooks import Behaviour, Seen, answer, close
from tests.support.monitoring.prometheus import MISSING, Watch, Watcher, program
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.world import LEASE_SECONDS, World

pytestmark = [
    pytest.mark.rest,
    pytest.mark.faults,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]

BENT = "tests.support.dispatch.bent_dispatch"
LEASE = ("--lease-seconds", str(LEASE_SECONDS))
MANY = [f"m_{number}" for number in range(14)]

TOMORROW = """
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent IN ('holdfast.entry'::regclass, 'holdfast.attempt'::regclass)
      AND substring(inhrelid::regclass::text FROM '[0-9]{8}$')
          > to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')
"""


def receipted(key: str, outcome: str, **headers: str) -> Behaviour:
    """The answer of a receiver that dealt with `key`, with a genuine receipt."""
    content = {"key": key, "outcome": outcome, "applied_at": "2026-11-02T12:15:01Z"}
    return answer(200, json.dumps({**content, "receipt": receipt(content)}).encode(), **headers)


FAULTS: dict[str, Callable[[Seen], Behaviour]] = {
    "dead": lambda _seen: answer(404),
    "mixed-up": lambda _seen: receipted(key_of("m_other", 1), "applied"),
    "stale": lambda seen: receipted(seen.header("webhook-id"), "stale"),
    "silent": lambda _seen: close,
    "forgetful": lambda seen: receipted(
        seen.header("webhook-id"), "applied", holdfast_key_window="60"
    ),
}
"""What the receiver does, by the name of the endpoint."""


OF_RECEIVERS = (
    *("HoldfastEntryDead", "HoldfastAnswerOfAnotherKey", "HoldfastDecisionStale"),
    *("HoldfastOutcomesUnknown", "HoldfastAddressRefused", "HoldfastReceiverDown"),
    *("HoldfastDecisionsLate", "HoldfastDecisionUndelivered", "HoldfastKeyWindowShrunk"),
)


def started(watch: Watcher, address: str, *alerts: str) -> Watch:
    """A Prometheus that has seen the dispatcher before the fault, when none of `alerts` fires."""
    seen = watch(address)
    seen.sees("holdfast_dead_total")
    seen.none_fires(*alerts)
    return seen


def test_alerts_about_a_receiver_are_fired_by_what_it_does(
    world: World, watch: Watcher, address: str
) -> None:
    world.receiver.script = lambda seen: FAULTS[seen.target.rpartition("/")[2]](seen)
    for name in FAULTS:
        world.endpoint(name=name)
    world.endpoint(name="barred", allow_cidrs=[])
    nobody = f"http://127.0.0.1:{free_port()}/down"
    world.endpoint(nobody, name="down", breaker_threshold=2, schedule_seconds=[1] * 30)
    with world.dispatch("log", "--listen", address, *LEASE):
        seen = started(watch, address, *OF_RECEIVERS)
        seen.sees('holdfast_breaker_state{endpoint="down"}')
        world.decisions.write(*MANY)
        seen.fires("HoldfastEntryDead", endpoint="dead")
        seen.fires("HoldfastAnswerOfAnotherKey", endpoint="mixed-up")
        seen.fires("HoldfastDecisionStale", endpoint="stale")
        seen.fires("HoldfastOutcomesUnknown", endpoint="silent")
        seen.fires("HoldfastAddressRefused", endpoint="barred")
        seen.fires("HoldfastKeyWindowShrunk", endpoint="forgetful")
        seen.fires("HoldfastReceiverDown", endpoint="down")
        seen.fires("HoldfastDecisionsLate", endpoint="down")
        seen.fires("HoldfastDecisionUndelivered", endpoint="dead")
        seen.fires("HoldfastDecisionUndelivered", endpoint="silent")


def test_alert_of_no_dispatcher_fires_until_one_runs(
    world: World, watch: Watcher, address: str
) -> None:
    seen = watch(address)
    seen.fires("HoldfastNoDispatcher")
    with world.dispatch("log", "--listen", address, *LEASE):
        seen.is_quiet("HoldfastNoDispatcher")


@pytest.mark.long
def test_stopped_process_fires_the_alert_of_an_outlived_lease(
    world: World, watch: Watcher, address: str
) -> None:
    world.endpoint()
    with world.dispatch("log", "--listen", address, *LEASE, failpoints="D10=stop") as running:
        seen = started(watch, address, "HoldfastLeaseOutlived")
        world.decisions.write("m_1")
        running.stands_still()
        assert drain(world.dsn).counts["rescued"] == 1
        running.go_on()
        seen.fires("HoldfastLeaseOutlived", endpoint="payouts")


@pytest.mark.long
def test_database_outage_of_a_lease_fires_the_alert_of_dropped_results(
    world: World, watch: Watcher, address: str
) -> None:
    world.endpoint()
    with FaultProxy.before_postgres(world.dsn) as proxy:
        dsn, options = proxy.dsn_of(world.dsn), ("--listen", address, *LEASE)
        with world.dispatch("log", *options, dsn=dsn, failpoints="D10=stop") as running:
            seen = started(watch, address, "HoldfastResultsDropped")
            world.decisions.write("m_1")
            running.stands_still()
            proxy.refuse()
            running.go_on()
            running.says("result.dropped")
            seen.fires("HoldfastResultsDropped")


@pytest.mark.long
def test_alert_of_a_gap_is_fired_by_an_entry_that_was_deleted(
    world: World, watch: Watcher, address: str
) -> None:
    world.endpoint(state="paused")
    with world.dispatch("log", "--listen", address, *LEASE) as running:
        seen = started(watch, address, "HoldfastSequenceGap")
        world.decisions.write("m_1", "m_1")
        running.until(lambda: world.value("SELECT count(*) FROM holdfast.lane"))
        world.db.execute("DELETE FROM holdfast.entry WHERE sequence = 1")
        world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
        seen.fires("HoldfastSequenceGap")


@pytest.mark.long
def test_alert_of_a_fault_is_fired_by_an_exception_within_the_dispatcher(
    world: World, watch: Watcher, address: str
) -> None:
    world.endpoint()
    with world.dispatch("log", "--listen", address, *LEASE, failpoints="D3=raise"):
        seen = started(watch, address, "HoldfastDispatcherFault")
        world.decisions.write("m_1")
        seen.fires("HoldfastDispatcherFault")


@pytest.mark.long
def test_host_clock_a_minute_ahead_fires_its_alert(
    world: World, watch: Watcher, address: str
) -> None:
    clock = world.tmp_path / "clock"
    clock.write_text("60")
    bent = (BENT, "--clock-file", str(clock))
    with world.dispatch("log", "--listen", address, *LEASE, launcher=bent):
        seen = watch(address)
        seen.fires("HoldfastClockSkew")
        seen.none_fires("HoldfastClockStopsDelivery")
        clock.write_text("400")
        seen.fires("HoldfastClockStopsDelivery")


@pytest.mark.long
def test_missing_future_partitions_fire_their_alert(
    world: World, watch: Watcher, address: str
) -> None:
    with world.dispatch("log", "--listen", address, *LEASE):
        seen = watch(address)
        seen.sees("holdfast_partition_days_ahead > 1")
        seen.none_fires("HoldfastPartitionsEnd")
        partitions = world.db.execute(TOMORROW).fetchall()
        assert partitions
        for (name,) in partitions:
            world.db.execute(f"DROP TABLE {name}".encode())
        seen.fires("HoldfastPartitionsEnd")
