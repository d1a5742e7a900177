"""The demo of checkpoints: kill, save, rescale, restore and damage one, compare after each."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from rich.console import Console

from holdfast.deploy.local.demo import database, generator
from holdfast.deploy.local.demo.generator import TrafficFile
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Failed, Interrupts, Kill, Processes
from holdfast.deploy.local.demo.recompute import Action, Recomputed, audit, expected, recompute
from holdfast.deploy.local.demo.run import JAVA_OPTIONS, LOCK_SECONDS
from holdfast.deploy.local.demo.scenario import POLL_SECONDS, STREAM
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import resolve_server
from holdfast.sink.contract import statements
from holdfast.sink.contract.exits import ExitCode


@dataclass(frozen=True)
class CheckpointLayout(Layout):
    """Also the files that have not arrived yet, a savepoint, and a second checkpoint."""

    @property
    def traffic(self) -> Path:
        return self.root / "traffic"

    @property
    def savepoint(self) -> Path:
        return self.root / "savepoint"

    @property
    def rescaled(self) -> Path:
        """The checkpoint with more key groups, at another path."""
        return self.root / "checkpoint-16-groups"

    def clear(self) -> None:
        """Delete the files of an earlier run, and no others."""
        super().clear()
        for folder in (self.traffic, self.savepoint, self.rescaled):
            shutil.rmtree(folder, ignore_errors=True)
        self.events.mkdir()

    def write_traffic(self, traffic: Sequence[TrafficFile]) -> None:
        """Write all files where the job does not read them."""
        generator.write_files(self.traffic, traffic)

    def arrive(self, count: int) -> None:
        """Move the first `count` files into the directory that the job reads."""
        for path in generator.files_in_order(self.traffic)[
            : count - len(generator.files_in_order(self.events))
        ]:
            path.rename(self.events / path.name)


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
        moment for moment in should.keys() | windows if should.get(moment) != windows.get(moment)
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
    text = statements.statement("holdfast.deploy.local.demo", name)
    return connection.execute(text).fetchall()


PARTS = (14, 26, 42)
"""Number of files that have arrived by the end of each part; one file is one micro-batch."""

KILLED_BATCH = 8
BACK = 4
"""Number of batches by which the restore goes back."""

STEP_SECONDS = 300.0
GROUPS, MORE_GROUPS = 4, 16


class Steps:
    """One run, on a prepared database."""

    def __init__(
        self,
        layout: CheckpointLayout,
        processes: Processes,
        interrupts: Interrupts,
        console: Console,
        dsn: str,
        now_us: int,
    ) -> None:
        self._layout = layout
        self._processes = processes
        self._interrupts = interrupts
        self._console = console
        self._dsn = dsn
        self._now_us = now_us
        self._ends: list[int] = []
        self.report: list[dict[str, Any]] = []
        """One object a step: its name, and the fields of `Comparison`."""

    def run(self) -> None:
        """Run all steps; raises `Failed` where a command does not do what it should."""
        layout = self._layout
        self._arrive(PARTS[0])
        self._killed()
        self._job(layout.checkpoint, GROUPS)
        self._compared("killed in the middle of a batch, started again")

        self._holdfast(
            "job", "savepoint", "--checkpoint", layout.checkpoint, "--to", layout.savepoint
        )
        self._arrive(PARTS[1])
        self._job(layout.rescaled, MORE_GROUPS, "--from-savepoint", layout.savepoint)
        self._compared(f"savepoint, {MORE_GROUPS} key groups instead of {GROUPS}, another path")

        self._restore(self._newest() - BACK)
        self._job(layout.rescaled, MORE_GROUPS)
        self._compared(f"restored {BACK} batches back, recomputed")

        damaged = self._damage()
        intact = self._verify(damaged)
        self._restore(intact)
        self._job(layout.rescaled, MORE_GROUPS)
        self._compared("damaged file found, restored to the newest intact batch, recomputed")

        self._arrive(PARTS[2])
        self._job(layout.rescaled, MORE_GROUPS)
        # Nothing needs the damaged file any more, and it is still there.
        self._holdfast(
            *("job", "checkpoints", "prune", "--checkpoint", layout.rescaled, "--keep-last", "10")
        )
        self._verify(None)
        self._compared("to the end")

    def _arrive(self, count: int) -> None:
        self._layout.arrive(count)
        self._ends.append(count)
        self._console.print(f"\n{count} files have arrived.", style="bold")

    def _killed(self) -> None:
        kill = Kill("S9", KILLED_BATCH + 1, self._layout.flags / "spark")
        job = self._start(*self._job_arguments(self._layout.checkpoint, GROUPS), arm=kill)
        deadline = time.monotonic() + STEP_SECONDS
        while not kill.due:
            if job.exit_code is not None or time.monotonic() > deadline:
                raise job.failure(f"did not reach batch {KILLED_BATCH}")
            self._interrupts.pause(POLL_SECONDS)
        job.kill()
        self._console.print(
            f"Killed Spark and its JVM (SIGKILL) in batch {KILLED_BATCH}: committed in Postgres,"
            " not in the checkpoint."
        )

    def _job(self, checkpoint: Path, groups: int, *options: str | Path) -> None:
        self._ended(self._start(*self._job_arguments(checkpoint, groups), *options))

    def _job_arguments(self, checkpoint: Path, groups: int) -> Sequence[str | Path]:
        return (
            *("job", "run", "--path", self._layout.events, "--checkpoint", checkpoint),
            *("--policy", self._layout.policy, "--stream", STREAM, "--available-now"),
            *("--max-files-per-trigger", "1", "--key-groups", str(groups)),
        )

    def _newest(self) -> int:
        listed = self._json("list", self._layout.rescaled)
        return max(int(batch["batch_id"]) for batch in listed["batches"])

    def _restore(self, batch: int) -> None:
        self._holdfast(
            *("job", "checkpoints", "restore", "--checkpoint", self._layout.rescaled),
            *("--batch", str(batch)),
        )

    def _damage(self) -> Path:
        """Flip one bit of the newest changelog of the state."""
        changelogs = self._layout.rescaled.glob("state/0/*/**/*.changelog")
        newest = max(changelogs, key=lambda path: (path.stat().st_mtime_ns, path.name))
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        self._console.print(
            f"Flipped a bit of {newest.relative_to(self._layout.root)}.", soft_wrap=True
        )
        return newest

    def _verify(self, damaged: Path | None) -> int:
        """Verify the checkpoint; returns the newest intact batch."""
        verified = self._json("verify", self._layout.rescaled, fails=damaged is not None)
        named = [each["file"] for each in verified["damaged"]]
        self._console.print(
            f"{verified['result']}: {', '.join(named) or 'no file is damaged'}", soft_wrap=True
        )
        if damaged is not None and not any(damaged.name in name for name in named):
            raise self._last.failure(f"did not name {damaged.name}")
        return max(int(batch["batch_id"]) for batch in verified["batches"] if batch["restorable"])

    def _compared(self, step: str) -> None:
        should = recompute(
            self._layout.events, self._layout.policy, self._now_us, pauses=self._ends[:-1]
        )
        result = compare(self._dsn, should)
        self.report.append({"step": step, **result.as_dict()})
        self._console.print(
            f"{step}: {result.decisions} decisions and {result.windows} windows;"
            f" {result.lost} lost, {result.repeated} repeated, {result.altered} altered,"
            f" {result.windows_different} windows different:"
            f" {'equal to' if result.equal else 'NOT equal to'} the undisturbed run",
            style="green" if result.equal else "bold red",
            soft_wrap=True,
        )

    def _json(self, verb: str, checkpoint: Path, *, fails: bool = False) -> dict[str, Any]:
        child = self._start("job", "checkpoints", verb, "--checkpoint", checkpoint, "--json")
        output = self._ended(child, fails=fails)
        try:
            document: dict[str, Any] = json.loads(
                output[output.index("{") : output.rindex("}") + 1]
            )
        except ValueError:
            raise child.failure("printed no JSON") from None
        return document

    def _holdfast(self, *arguments: str | Path) -> None:
        output = self._ended(self._start(*arguments))
        self._console.print(output.strip(), markup=False, highlight=False, soft_wrap=True)

    def _start(self, *arguments: str | Path, arm: Kill | None = None) -> Child:
        words = [str(word) for word in arguments]
        self._console.print(
            f"$ holdfast {' '.join(map(self._short, words))}", soft_wrap=True, markup=False
        )
        name = "-".join(word for word in words[:3] if not word.startswith("-"))
        self._last = self._processes.start(name, words, arm.environment if arm else None)
        return self._last

    def _short(self, word: str) -> str:
        return word.removeprefix(f"{self._layout.root}/")

    def _ended(self, child: Child, *, fails: bool = False) -> str:
        deadline = time.monotonic() + STEP_SECONDS
        while child.exit_code is None:
            if time.monotonic() > deadline:
                raise child.failure(f"did not end within {STEP_SECONDS:.0f} s")
            self._interrupts.pause(POLL_SECONDS)
        if fails != (child.exit_code != ExitCode.OK):
            raise Failed(
                child.name,
                f"ended with exit code {child.exit_code}",
                child.output().splitlines()[-5:],
                child.log,
            )
        child.kill()
        return child.output()


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
