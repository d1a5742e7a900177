"""The steps: run, kill, save, rescale, restore, damage; after each, the comparison.

The files arrive in three parts. At the end of a part the job has read everything that is there, so
it also runs a batch without data; the undisturbed run with which it is compared does the same.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.deploy.local.checkpoint_demo.compare import compare
from holdfast.deploy.local.checkpoint_demo.layout import CheckpointLayout
from holdfast.deploy.local.demo.interrupts import Interrupts
from holdfast.deploy.local.demo.kills import Kill
from holdfast.deploy.local.demo.processes import Child, Failed, Processes
from holdfast.deploy.local.demo.recompute import recompute
from holdfast.deploy.local.demo.scenario import POLL_SECONDS, STREAM
from holdfast.sink.contract.exits import ExitCode

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
        found = self._json("verify", self._layout.rescaled, fails=damaged is not None)
        named = [each["file"] for each in found["damaged"]]
        self._console.print(
            f"{found['result']}: {', '.join(named) or 'no file is damaged'}", soft_wrap=True
        )
        if damaged is not None and not any(damaged.name in name for name in named):
            raise self._last.failure(f"did not name {damaged.name}")
        return max(int(batch["batch_id"]) for batch in found["batches"] if batch["restorable"])

    def _compared(self, step: str) -> None:
        should = recompute(
            self._layout.events, self._layout.policy, self._now_us, pauses=self._ends[:-1]
        )
        found = compare(self._dsn, should)
        self.report.append({"step": step, **found.as_dict()})
        self._console.print(
            f"{step}: {found.decisions} decisions and {found.windows} windows;"
            f" {found.lost} lost, {found.repeated} repeated, {found.altered} altered,"
            f" {found.windows_different} windows different:"
            f" {'equal to' if found.equal else 'NOT equal to'} the undisturbed run",
            style="green" if found.equal else "bold red",
            soft_wrap=True,
        )

    def _json(self, verb: str, checkpoint: Path, *, fails: bool = False) -> dict[str, Any]:
        child = self._start("job", "checkpoints", verb, "--checkpoint", checkpoint, "--json")
        output = self._ended(child, fails=fails)
        try:
            found: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
        except ValueError:
            raise child.failure("printed no JSON") from None
        return found

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
