"""One run of the demo, from an empty directory to its report."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from holdfast.deploy.local.demo import database, generator, report, story
from holdfast.deploy.local.demo.generator import TrafficFile
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.live import View
from holdfast.deploy.local.demo.processes import Interrupts, Processes
from holdfast.deploy.local.demo.recompute import Recomputed, recompute, recompute_batches
from holdfast.deploy.local.demo.scenario import Scenario
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import resolve_server

LOCK_SECONDS = 1.0

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g"
"""For a JVM that runs for a minute, the optimizing compiler costs more than it saves."""


def run(
    layout: Layout, *, seed: int, events: int, view: View, kafka: bool = False
) -> report.Report:
    """Run the demo in `layout`, on HOLDFAST_DSN if it is set, else on an embedded server there.

    With `kafka` the events come from a topic of a broker, which is killed as well.

    Raises `CommandError` on a failure and `Interrupted` on a signal. It never leaves a process
    running.
    """
    started = time.monotonic()
    layout.claim()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(locked(layout.lock, LOCK_SECONDS, occupied(layout)))
        java = spark_environment()
        layout.clear()
        layout.make_secret()
        stack.enter_context(view)
        view.say("Starting Postgres." if _embedded() else "Using the Postgres of HOLDFAST_DSN.")
        server_dsn = stack.enter_context(resolve_server(None, layout.postgres))
        interrupts.check()
        holdfast_dsn, payouts_dsn = database.prepare(server_dsn)
        view.say("Created two databases. Making two hours of PayLedger traffic.")
        layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
        interrupts.check()
        environment = {
            **java,
            **java_options(),
            "HOLDFAST_DSN": holdfast_dsn,
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
            "PYTHONUNBUFFERED": "1",
        }
        processes = stack.enter_context(Processes(layout.logs, environment))
        traffic = generator.traffic(seed, events)
        play = _with_topic if kafka else _with_files
        result = play(
            Parts(layout, processes, view, interrupts), traffic, (holdfast_dsn, payouts_dsn)
        )
        result = replace(result, seconds=round(time.monotonic() - started, 1))
        result.write(layout.report)
        return result


class Parts(NamedTuple):
    """What every scenario gets."""

    layout: Layout
    processes: Processes
    view: View
    interrupts: Interrupts


def _with_files(parts: Parts, traffic: list[TrafficFile], dsns: tuple[str, str]) -> report.Report:
    """Play the scenario with event files, whose decisions are known before."""
    generator.write_files(parts.layout.events, traffic)
    recomputed = recompute(parts.layout.events, parts.layout.policy, _now_us())
    parts.view.say(
        f"{recomputed.lines:,} lines in {len(recomputed.batches) - 1} files. A separate"
        f" calculation expects {len(recomputed.decisions)} decisions, each to be applied once."
    )
    batch_id = recomputed.batch_of(story.HERO, "block")
    scenario = Scenario(*parts, batch_id=batch_id, batches=len(recomputed.batches))
    return _played(scenario, dsns, lambda: recomputed)


def _with_topic(parts: Parts, traffic: list[TrafficFile], dsns: tuple[str, str]) -> report.Report:
    """Play the scenario with a topic; its decisions follow from the batches that Spark planned."""
    # Imported here, because the demo with files needs no client of Kafka.
    from holdfast.deploy.local.demo import topic_scenario  # noqa: PLC0415 - see above
    from holdfast.deploy.local.demo.topic_scenario import PARTITIONS, TOPIC, TopicScenario  # noqa: PLC0415
    from holdfast.deploy.local.kafka import topics  # noqa: PLC0415 - as above
    from holdfast.deploy.local.kafka.broker import Broker  # noqa: PLC0415 - as above

    layout = parts.layout
    parts.view.say("Starting the broker.")
    with Broker(layout.broker) as broker:
        topics.make(broker.admin(), TOPIC, PARTITIONS)
        scenario = TopicScenario(*parts, traffic, broker)

        def recomputed() -> Recomputed:
            records = topics.read(broker.bootstrap_servers, TOPIC)
            lines = topic_scenario.batches_of_topic(layout.checkpoint, TOPIC, records)
            return recompute_batches(lines, layout.policy, _now_us())

        result = _played(scenario, dsns, recomputed)
        # Whatever ends the run ends the job before its broker.
        parts.processes.close()
    return replace(
        result,
        broker_kills=int(scenario.broker_killed),
        records_missing=len(scenario.producer.lines) - result.events,
    )


def _played(
    scenario: Scenario, dsns: tuple[str, str], recomputed: Callable[[], Recomputed]
) -> report.Report:
    holdfast_dsn, payouts_dsn = dsns
    scenario.start_receiver(payouts_dsn)
    with database.reading(holdfast_dsn, payouts_dsn) as databases:
        scenario.run(databases)
        return report.make(
            databases, recomputed(), scenario.spark_kill, scenario.dispatcher_kill, seconds=0.0
        )


def _now_us() -> int:
    return round(time.time() * 1_000_000)


def _embedded() -> bool:
    return not os.environ.get("HOLDFAST_DSN")


def java_options() -> dict[str, str]:
    """Return the environment of a JVM that lives for a minute."""
    return {"JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA_OPTIONS}".strip()}


def occupied(layout: Layout) -> str:
    """Return the error of a second run in the same directory."""
    return (
        f"another demo is running in {layout.root}. Nothing was changed. Wait for it, stop it with"
        " Ctrl-C, or choose another --directory."
    )
