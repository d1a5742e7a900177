"""Processes found by what they are, while they and others start and end."""

import signal
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import psutil


def matching(
    processes: Iterable[psutil.Process], condition: Callable[[psutil.Process], object]
) -> list[psutil.Process]:
    """Return the processes for which a condition holds.

    One that has ended since they were listed, or is a zombie, is left out. Spark's scripts and its
    file systems start programs that live for a moment beside it.
    """
    results = []
    for each in processes:
        try:
            if condition(each):
                results.append(each)
        except psutil.NoSuchProcess:
            continue
    return results


def java_below(pid: int | None = None) -> list[psutil.Process]:
    """Return the Java processes that a process, or this one, has started, or its children have."""
    return matching(
        psutil.Process(pid).children(recursive=True), lambda each: each.name() == "java"
    )


def end(
    process: "subprocess.Popen[Any]", seconds: float, number: signal.Signals = signal.SIGTERM
) -> None:
    """End a process that this one started: by a signal, and after so many seconds by SIGKILL."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
