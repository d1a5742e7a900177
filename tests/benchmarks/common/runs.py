"""Runs programs in separate processes, and summarizes several runs."""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.sink.contract.exits import ExitCode


class Missing(Exception):
    """A case that cannot be measured here; the message says why."""


def last_line(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run a program of a benchmark; the last line that it prints is the result, as JSON.

    Raises `Missing` when it ends with `ExitCode.NOTHING_MATCHED`, and RuntimeError, with its last
    words, when it ends with anything else but 0.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode == ExitCode.NOTHING_MATCHED:
        raise Missing(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:4])} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(
    cases: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, tuple[str, str]]
) -> dict[str, float]:
    """The medians of pairs of cases divided, where both were measured."""
    return {
        name: cases[ours]["median"] / cases[other]["median"]
        for name, (ours, other) in wanted.items()
        if ours in cases and other in cases
    }
