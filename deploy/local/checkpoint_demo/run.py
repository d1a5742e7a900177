"""One run of the demo of checkpoints, from an empty directory to its report."""

import json
import os
import time
from contextlib import ExitStack
from typing import Any

from rich.console import Console

from holdfast.deploy.local.checkpoint_demo.layout import CheckpointLayout
from holdfast.deploy.local.checkpoint_demo.steps import Steps
from holdfast.deploy.local.demo import database, generator
from holdfast.deploy.local.demo.interrupts import Interrupts
from holdfast.deploy.local.demo.processes import Processes
from holdfast.deploy.local.demo.run import JAVA_OPTIONS, LOCK_SECONDS
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import resolve_server


def run(
    layout: CheckpointLayout, *, seed: int, events: int, console: Console
) -> list[dict[str, Any]]:
    """Run every step; returns what each left, compared with the undisturbed run.

    Raises `CommandError` on a failure and `Interrupted` on a signal. It never leaves a process
    running.
    """
    layout.claim()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(
            locked(
                layout.lock,
                LOCK_SECONDS,
                f"another demo is running in {layout.root}. Nothing was changed. Wait for it, or"
                " choose another --directory.",
            )
        )
        java = spark_environment()
        layout.clear()
        server_dsn = stack.enter_context(resolve_server(None, layout.postgres))
        interrupts.check()
        dsn, _ = database.prepare(server_dsn)
        layout.write_traffic(generator.traffic(seed, events))
        layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
        environment = {
            **java,
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA_OPTIONS}".strip(),
            "HOLDFAST_DSN": dsn,
            "PYTHONUNBUFFERED": "1",
        }
        processes = stack.enter_context(Processes(layout.logs, environment))
        steps = Steps(layout, processes, interrupts, console, dsn, round(time.time() * 1_000_000))
        steps.run()
        layout.report.write_text(json.dumps(steps.report, indent=2) + "\n", encoding="utf-8")
        return steps.report
