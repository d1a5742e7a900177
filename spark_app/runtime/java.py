"""Finds a Java that Spark 4 supports.

Searched where Spark searches: `JAVA_HOME`, then `PATH`. 17 and 21 work, and 25 from 25.0.3 on
(before, its default garbage collector can corrupt data, JDK-8377811); older versions do not start.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from holdfast.sink.contract.exits import CommandError

WAY_OUT = 'Nothing was started; run eval "$(holdfast local env)" to use the Java of Holdfast.'

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
_GOOD_25 = (25, 0, 3)


def require_java() -> None:
    """Raise CommandError, in one line, unless Spark can be started."""
    java = _find()
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(
            f"Spark needs Java, and {java} does not run: {error}. {WAY_OUT}"
        ) from None
    version = parse_version(said)
    if not suits(version):
        shown = ".".join(map(str, version)) if version else "unknown"
        raise CommandError(
            f"Spark needs Java 17, 21 or at least 25.0.3, and {java} is {shown}. {WAY_OUT}"
        )


def parse_version(said: str) -> tuple[int, ...]:
    """Return the version numbers that `java -version` prints; empty when there are none.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    (17, 0, 15)
    """
    match = _VERSION.search(said)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def suits(version: tuple[int, ...]) -> bool:
    """Return whether Spark 4 runs on this version without losing data."""
    if not version:
        return False
    return version[0] in {17, 21} or version >= _GOOD_25


def _find() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    java = shutil.which("java")
    if java is None:
        raise CommandError(f"Spark needs Java 17 or 21, and there is none. {WAY_OUT}")
    return java
