"""Finds a Java that Spark 4 supports.

Searched where Spark searches: `JAVA_HOME`, then `PATH`.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from holdfast.sink.contract.exits import CommandError

WAY_OUT = (
    'Nothing was started; run unset JAVA_HOME && eval "$(holdfast local env)" to use a Java that'
    " Holdfast finds or brings."
)

WANTED = "Spark needs Java 17, 21 or 25.0.3 and newer"

LONG_TERM = (17, 21)
"""Releases that Spark 4.3 supports with any update."""

FIRST_SOUND_25 = (25, 0, 3)
"""In earlier updates G1 can corrupt data (JDK-8377811), and Spark 4.3 deprecates them."""

Version = tuple[int, int, int]


def require_java() -> None:
    """Raise CommandError, in one line, unless Spark can be started."""
    java = _find()
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(
            f"Spark needs Java, and {java} does not run: {error}. {WAY_OUT}", code="java_unsuitable"
        ) from None
    printed = re.search(r'version "([^"]*)', said)
    version = parse_version(printed[1]) if printed else None
    if version is None or why_not(version):
        what = shown(version) if version else "unknown"
        raise CommandError(f"{WANTED}, and {java} is {what}. {WAY_OUT}", code="java_unsuitable")


def why_not(version: Version) -> str | None:
    """Return why Spark must not run on `version`, or None if it may.

    >>> why_not((21, 0, 8)), why_not((8, 0, 402))
    (None, 'Java 8.0.402')
    """
    text = f"Java {shown(version)}"
    if version[0] in LONG_TERM or version >= FIRST_SOUND_25:
        return None
    if version[0] == FIRST_SOUND_25[0]:
        return f"{text}, whose G1 collector can corrupt data (JDK-8377811, fixed in 25.0.3)"
    return text


def shown(version: Version) -> str:
    """Return a version as text, such as `17.0.15`."""
    return ".".join(map(str, version))


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


def _find() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    java = shutil.which("java")
    if java is None:
        raise CommandError(
            f"Spark needs Java 17 or 21, and there is none. {WAY_OUT}", code="java_missing"
        )
    return java
