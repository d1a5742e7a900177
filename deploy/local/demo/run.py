"""One run of the demo, from an empty directory to its report."""

import os
import time
from contextlib import ExitStack

from deploy.local.demo import database, files, generator, report
from deploy.local.demo.interrupts import Interrupts
from deploy.local.demo.layout import Layout
from deploy.local.demo.live import View
from deploy.local.demo.processes import Processes
from deploy.local.demo.recompute import recompute
from deploy.local.demo.scenario import Scenario
from deploy.local.java import spark_environment
from deploy.local.locks import locked
from deploy.local.postgres import resolve_server

LOCK_SECONDS = 1.0

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g"
"""For a JVM that runs for a minute, the optimizing compiler costs more than it saves."""


def run(layout: Layout, *, seed: int, events: int, view: View) -> report.Report:
    """Run the demo in `layout`, on HOLDFAST_DSN if it is set, else on an embedded server there.

    Raises `CommandError` on a failure and `Interrupted` on a signal. It never leaves a process
    running.
    """
    started = time.monotonic()
    layout.claim()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(locked(layout.lock, LOCK_SECONDS, _occupied(layout)))
        java = spark_environment()
        layout.clear()
        layout.make_secret()
        stack.enter_context(view)
        view.say("Starting Postgres." if _embedded() else "Using the Postgres of HOLDFAST_DSN.")
        server_dsn = stack.enter_context(resolve_server(None, layout.postgres))
        interrupts.check()
        holdfast_dsn, payouts_dsn = database.prepare(server_dsn)
        view.say("Created two databases. Writing two hours of PayLedger traffic.")
        files.write(layout.events, generator.traffic(seed, events))
        layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
        recomputed = recompute(layout.events, layout.policy, round(time.time() * 1_000_000))
        view.say(
            f"{recomputed.lines:,} lines in {len(recomputed.batches) - 1} files. A separate"
            f" calculation expects {len(recomputed.decisions)} decisions, each to be applied once."
        )
        interrupts.check()
        environment = {
            **java,
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA_OPTIONS}".strip(),
            "HOLDFAST_DSN": holdfast_dsn,
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
            "PYTHONUNBUFFERED": "1",
        }
        processes = stack.enter_context(Processes(layout.logs, environment))
        scenario = Scenario(layout, processes, view, interrupts, recomputed)
        scenario.start_receiver(payouts_dsn)
        databases = stack.enter_context(database.reading(holdfast_dsn, payouts_dsn))
        scenario.run(databases)
        made = report.make(
            databases,
            recomputed,
            scenario.spark_kill,
            scenario.dispatcher_kill,
            time.monotonic() - started,
        )
        made.write(layout.report)
        return made


def _embedded() -> bool:
    return not os.environ.get("HOLDFAST_DSN")


def _occupied(layout: Layout) -> str:
    return (
        f"another demo is running in {layout.root}. Nothing was changed. Wait for it, stop it with"
        " Ctrl-C, or choose another --directory."
    )
