"""The machine and versions of a run, for the report."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from holdfast.deploy.local.java import find_java, inspect

_PACKAGES = ("pyspark", "pyarrow", "numpy", "psycopg", "psutil")


def machine() -> dict[str, Any]:
    """Cores, memory and how busy it was before the run began."""
    return {
        "cpus": os.cpu_count(),
        "model": _model(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    runtime = inspect(find_java() / "bin" / "java")
    java = ".".join(map(str, runtime.version)) if runtime else "unknown"
    packages = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), "java": java, **packages}


def git_commit() -> str:
    """The commit of the working tree, marked when it was changed since."""
    return _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain") else "")


def _git(*words: str) -> str:
    answer = subprocess.run(
        ["git", *words],  # noqa: S607 - whichever git the reader has
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip()


def _model() -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
